"""Two homes on one cluster of real kubelets: one works, the other stands by, and takes over when it must."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kube.lab import Lab
from tests.kube.live import NO_CLOUD, Live, applied_job, live, working


def test_one_of_two_works_and_the_other_takes_over_when_it_is_killed(
    two_kubelets: Lab, tmp_path: Path
) -> None:
    marks, homes = tmp_path / "marks", (tmp_path / "one", tmp_path / "two")
    tmp_path.chmod(0o755)
    for path in (marks, *homes):
        path.mkdir()

    def applied(name: str) -> None:
        script = f"echo start >>{marks / name}"
        one.apply([applied_job(name, script, gpus=2, volume=marks)])

    with working(two_kubelets, homes[0]) as one, live(two_kubelets, homes[1]) as two:
        two.configure(NO_CLOUD)
        two.start("starburst", "starburst", "up", "--config", "starburst.yaml", "--log-format", "text")
        two.wait_for("the second stands by", lambda: two.lines("starburst", "stands-by"))
        waits = applied_job("waits", f"echo start >>{marks}/waits", gpus=2, volume=marks)
        (homes[1] / "job.json").write_text(json.dumps(waits))
        two.run("submit", "job.json", "-o", "name")
        for name in ("first", "second"):
            applied(name)
        ended = dict.fromkeys(("first", "second"), "succeeded")
        one.wait_for("the first runs what is applied", lambda: phases(one) == ended)
        assert set(phases(two)) <= {"waits"}
        assert not (marks / "waits").exists()

        one.kill("starburst")
        applied("third")
        theirs = dict.fromkeys(("waits", "third"), "succeeded")
        two.wait_for("the second takes over", lambda: phases(two) == theirs)
        one.start("starburst", "starburst", "up", "--config", "starburst.yaml", "--log-format", "text")
        one.wait_for("the first stands by", lambda: one.lines("starburst", "stands-by"))
        applied("fourth")
        two.wait_for("and leaves it the work", lambda: phases(two) == {**theirs, "fourth": "succeeded"})
        assert phases(one) == ended
    everything = (*ended, *theirs, "fourth")
    assert {path.name: path.read_text() for path in marks.iterdir()} == dict.fromkeys(everything, "start\n")


def phases(starburst: Live) -> dict[str, str]:
    """Of the jobs in the store of one of them."""
    return {job["name"]: job["phase"] for job in starburst.jobs()}
