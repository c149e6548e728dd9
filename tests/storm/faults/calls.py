"""Calls that fail before or after they took effect, and streams that break."""

from tests.storm.weather import chance

chance("api-refuses", 0.02, "the API server answers 500")
chance("api-throttles", 0.02, "the API server answers 429")
chance("api-not-reached", 0.02, "no connection to the API server: nothing happened")
chance("api-cut-before", 0.02, "a write of which no answer comes, and that was not carried out")
chance("api-answer-lost", 0.03, "a write that was carried out, and of which no answer comes")
chance("api-never-answers", 0.005, "a call that is never answered; half of the writes are carried out")
chance("api-lands-later", 0.01, "a write of which no answer comes is carried out up to a minute later")
chance("api-slow", 0.05, "an answer that takes seconds")
chance("watch-expired", 0.05, "a watch is told 410: list again")
chance("watch-cut", 0.03, "the stream of a watch breaks")
chance("watch-repeats", 0.1, "a watch goes back in time: what it told before comes again")
chance("watch-late", 0.05, "events of a watch come up to a minute late")
chance("sky-cut-before", 0.03, "SkyPilot's API server is not reached")
chance("sky-slow", 0.05, "SkyPilot takes up to a minute to take in what it is asked")
chance("sky-answer-lost", 0.03, "SkyPilot does what it is asked, and its answer is lost")
chance("sky-fails", 0.01, "SkyPilot has an internal error")
chance("sky-late", 0.03, "SkyPilot answers up to 40 s late")
chance("wait-cut", 0.05, "the stream of a SkyPilot request breaks")
chance("listing-empty", 0.02, "SkyPilot lists nothing")
chance("listing-stale", 0.03, "SkyPilot lists what there was minutes ago")
chance("listing-short", 0.02, "SkyPilot's listing lacks one cluster")
chance("cloud-throttles", 0.05, "the cloud's own API throttles")
chance("http-cut-before", 0.1, "a submission over HTTP does not arrive, and its user hands it in again")
chance(
    "http-answer-lost",
    0.1,
    "a submission over HTTP is taken, its answer is lost, and its user hands it in again",
)
chance("regretted", 0.1, "a user cancels a job while a machine is being rented for it")
chance("report-late", 0.05, "a site reports something up to five minutes late, after what came later")
chance("report-doubled", 0.05, "a site reports again what it reported, up to two hours later")
chance("ssh-cut-before", 0.03, "ssh breaks before the exchange")
chance("ssh-answer-lost", 0.03, "ssh breaks after the exchange took effect")
chance("ssh-late", 0.03, "a machine answers up to 25 s late")
chance("broker-cut-before", 0.01, "the connection to the broker breaks before a message is there")
chance("broker-ack-lost", 0.01, "the broker has a message, and the connection breaks before it says so")
