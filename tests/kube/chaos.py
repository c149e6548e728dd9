"""Mixed jobs while seeded faults fall: none is lost, none runs twice, no two copies live.

`tests/kube/test_chaos.py` is the form of one minute; `long_chaos` is that of ten, with more faults.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from starburst.kube.resources import Object
from tests.kube.chaos_jobs import ChaosJob, Verdict, chaos_jobs, claim, judge
from tests.kube.lab import Lab
from tests.kube.live import IMAGE, PATIENCE_S, Live, give_gpus, live
from tests.kube.test_refusals import webhook

CONFIG = """
clock:
  speed: 10
policy:
  offload_cpu_only: false
cluster:
  kind: kubernetes
  bind_limit: 20s
cloud:
  offers: []
"""
NODES = ("node0", "node1")
#: Wall seconds of a fault that lasts, and until all jobs must have ended after the last one.
LASTS_S, CALM_S = 6.0, 600.0
#: Share of the jobs that is handed in before the first fault; the others come while faults fall.
AT_ONCE = 0.2


class Chaos:
    """One run: its processes, its jobs, and the faults that have fallen."""

    def __init__(self, starburst: Live, seed: int) -> None:
        self.starburst = starburst
        self.draw = random.Random(seed)
        self.marks = starburst.root / "marks"
        self.story: list[str] = []
        #: When faults fell that delete pods or stop the API server, in seconds of uptime.
        self.deletions: list[tuple[float, float]] = []
        #: When all processes of a node were killed.
        self.kills: list[tuple[float, float]] = []
        self.jobs: list[ChaosJob] = []
        #: How many of them were handed in.
        self.handed_in = 0
        #: Names of Jobs that were deleted and created again.
        self.recreated: set[str] = set()

    def begin(self, count: int) -> None:
        """Start everything, and draw the jobs."""
        self.marks.mkdir()
        self.marks.chmod(0o777)
        self.starburst.configure(CONFIG)
        self.apply(*claim(self.marks))
        self.starburst.up()
        self.starburst.chakra()
        self.jobs = chaos_jobs(count, self.draw, self.marks)

    def hand_in(self, share: float) -> None:
        """Hand in jobs, in their order, until so much of all has been: faults find some in each phase."""
        some = self.jobs[self.handed_in : round(share * len(self.jobs))]
        self.handed_in += len(some)
        applied = [job.manifest for job in some if job.how != "submitted"]
        submitted = [json.dumps(job.manifest) for job in some if job.how == "submitted"]
        if applied:
            self.apply(*applied)
        if submitted:
            (self.starburst.root / "jobs.yaml").write_text("\n---\n".join(submitted))
            self.starburst.run("submit", "jobs.yaml", "-o", "name")

    def fall(self, seconds: float, faults: Sequence[Callable[[Chaos], str]]) -> None:
        """Let faults fall one after the other, each kind once before any comes again."""
        began, kinds = time.monotonic(), list[Callable[["Chaos"], str]]()
        while (spent := (time.monotonic() - began) / seconds) < 1.0:
            self.hand_in(AT_ONCE + (1.0 - AT_ONCE) * spent)
            if not kinds:
                kinds = self.draw.sample(faults, len(faults))
            self.starburst.lab.revive_api_server()
            began_s, fault = uptime_s(), kinds.pop()
            self.story.append(f"{began_s:.0f} s: {fault(self)}")
            print(self.story[-1], flush=True)
            if fault not in LEAVE_PODS:
                self.deletions.append((began_s, uptime_s()))
            time.sleep(self.draw.uniform(0.0, 3.0))

    def placements(self) -> str:
        """The lines of the log about placements and ends, of all jobs."""
        log = (self.starburst.root / "starburst.log").read_text()
        return "\n".join(line for line in log.splitlines() if "chaos-" in line)

    def end(self) -> Verdict:
        """Wait until all jobs have ended, and read their marks."""
        self.hand_in(1.0)

        def phases() -> set[str]:
            self.starburst.lab.revive_api_server()
            found = [job["phase"] for job in self.starburst.jobs()]
            return set(found) if len(found) == len(self.jobs) + len(self.recreated) else {"missing"}

        self.starburst.wait_for(
            f"all jobs have ended after {self.story}",
            lambda: phases() <= {"succeeded", "failed", "cancelled"},
            CALM_S,
        )
        once = [job for job in self.jobs if job.name not in self.recreated]
        return judge(once, self.marks, self.deletions, self.kills)

    def evidence(self, names: Sequence[str]) -> str:
        """The marks of some jobs, and what the server has of their pods."""
        marks = [(self.marks / name).read_text() for name in names if (self.marks / name).exists()]
        pods = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        theirs = [pod for pod in pods if any(pod["metadata"]["name"].startswith(f"{n}") for n in names)]
        return "".join(marks) + "\n".join(json.dumps(pod["status"]) for pod in theirs)

    def unsuccessful(self) -> dict[str, str]:
        """Jobs that have not succeeded, with the reason."""
        return {
            j["name"]: j["message"]
            for j in self.starburst.jobs()
            if j["phase"] != "succeeded" and not (j["phase"] == "cancelled" and j["name"] in self.recreated)
        }

    def pods(self, phase: str = "Running", *, of_jobs: bool = False) -> list[str]:
        """Names of pods in a phase; `of_jobs`: only those that a Job owns."""
        selector = ("-l", "job-name") if of_jobs else ()
        listed = ("get", "pods", "-o", "name", "--field-selector", f"status.phase={phase}")
        return self.kubectl(*listed, *selector).split()

    def apply(self, *items: Object) -> None:
        """kubectl apply"""
        self.kubectl(
            "apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
        )

    def kubectl(self, *args: str, given: str | None = None) -> str:
        """A kubectl command, repeated while the server is coming up: a fault must not end the run."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.starburst.kubectl(*args, given=given)
            except AssertionError:
                if time.monotonic() > give_up:
                    raise
            self.starburst.lab.revive_api_server()
            time.sleep(1.0)


def uptime_s() -> float:
    """Seconds since the boot of the machine, as jobs mark them."""
    return float(Path("/proc/uptime").read_text().split()[0])


def kill_scheduler(chaos: Chaos) -> str:
    """kill -9 of `starburst up`, which is started again."""
    chaos.starburst.kill("starburst")
    chaos.starburst.up()
    return "starburst killed"


def kill_chakra(chaos: Chaos) -> str:
    """kill -9 of Chakra, which is away for a while."""
    chaos.starburst.kill("chakra")
    time.sleep(chaos.draw.uniform(0.0, LASTS_S))
    chaos.starburst.chakra()
    return "chakra killed"


def kill_api_server(chaos: Chaos) -> str:
    """kill -9 of the API server."""
    chaos.starburst.lab.restart_api_server()
    return "API server killed"


def drain(chaos: Chaos) -> str:
    """kubectl drain, and uncordon."""
    node = chaos.draw.choice(NODES)
    how = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", "--grace-period=1", "--timeout=60s")
    try:
        chaos.kubectl("drain", node, *how)
        time.sleep(LASTS_S)
    finally:
        chaos.kubectl("uncordon", node)
    return f"{node} drained"


def taint(chaos: Chaos) -> str:
    """A taint that evicts."""
    node = chaos.draw.choice(NODES)
    chaos.kubectl("taint", "node", node, "chaos=here:NoExecute", "--overwrite")
    time.sleep(LASTS_S)
    chaos.kubectl("patch", "node", node, "-p", '{"spec": {"taints": null}}')
    return f"{node} tainted"


def refuse(chaos: Chaos) -> str:
    """A webhook for Jobs whose service is away."""
    chaos.apply(webhook())
    time.sleep(LASTS_S)
    chaos.kubectl("delete", "validatingwebhookconfiguration", "away", "--ignore-not-found")
    return "webhook away"


def fill_quota(chaos: Chaos) -> str:
    """A quota that lets no pod in."""
    meta = {"name": "chaos", "namespace": "default"}
    chaos.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": 0}}}
    )
    time.sleep(LASTS_S)
    chaos.kubectl("delete", "quota", "chaos", "--ignore-not-found")
    return "quota full"


def delete_pods(chaos: Chaos) -> str:
    """Somebody deletes pods of Jobs."""
    pods = chaos.pods(of_jobs=True)
    some = chaos.draw.sample(pods, min(2, len(pods)))
    if some:
        chaos.kubectl("delete", *some, "--wait=false", "--ignore-not-found")
    return f"{len(some)} pods deleted"


def meddle(chaos: Chaos) -> str:
    """Somebody writes attempts on Jobs, and strips labels of pods."""
    jobs = chaos.kubectl("get", "jobs", "-o", "name").split()
    for job in chaos.draw.sample(jobs, min(3, len(jobs))):
        with suppress(AssertionError):  # it has gone meanwhile
            chaos.starburst.kubectl("annotate", job, "--overwrite", "starburst.io/attempt=99")
    for pod in chaos.pods(of_jobs=True)[:3]:
        with suppress(AssertionError):
            chaos.starburst.kubectl("label", pod, "starburst.io/job-", "starburst.io/controller-")
    return "attempts and labels changed"


def intrude(chaos: Chaos) -> str:
    """Another scheduler binds pods onto GPUs that may be given away: kubelets refuse some (OutOf…)."""
    name = f"intruder-{len(chaos.story)}"
    amounts = {"nvidia.com/gpu": "4", "cpu": "1m"}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "3"],
        "resources": {"limits": amounts},
    }
    for node in NODES:
        spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
        chaos.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-{node}"}, "spec": spec})
    return "foreign pods bound"


FAULTS: Sequence[Callable[[Chaos], str]] = (
    kill_scheduler,
    kill_chakra,
    kill_api_server,
    drain,
    taint,
    refuse,
    fill_quota,
    delete_pods,
    meddle,
    intrude,
)
#: Faults that neither delete pods nor keep the server from hearing of them.
LEAVE_PODS = (kill_scheduler, kill_chakra, refuse, fill_quota, meddle, intrude)


def run(
    lab: Lab,
    root: Path,
    *,
    jobs: int,
    seconds: float,
    seed: int,
    faults: Sequence[Callable[[Chaos], str]] = FAULTS,
) -> tuple[Chaos, Verdict, dict[str, str]]:
    """The whole of it, on a cluster that is cleared afterwards."""
    root.chmod(0o755)
    give_gpus(lab, NODES, 8)
    with live(lab, root) as starburst:
        chaos = Chaos(starburst, seed)
        try:
            chaos.begin(jobs)
            chaos.fall(seconds, faults)
            verdict = chaos.end()
            if verdict.lost:
                print(chaos.evidence(verdict.lost), flush=True)
            return chaos, verdict, chaos.unsuccessful()
        finally:
            for kind in ("jobs", "pods", "pvc", "pv"):
                chaos.kubectl("delete", kind, "--all", "--wait=false")
