"""Jobs that note their own doing, and what their marks say afterwards: lost, twice, two live copies."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starburst.kube.resources import Object
from tests.kube.live import job_manifest

#: A beat with the pod's name and the seconds since the boot of the machine, in which all nodes are.
SCRIPT = """
trap 'exit 143' TERM
read now rest </proc/uptime; echo "start $HOSTNAME $now" >>{mark}
for beat in {beats}; do read now rest </proc/uptime; echo "beat $HOSTNAME $now" >>{mark}; sleep 0.2; done
read now rest </proc/uptime; echo "end $HOSTNAME $now" >>{mark}
"""
#: Seconds by which beats of two pods of one task may overlap: one beat and what a loaded machine adds.
SLACK_S = 0.5
#: Seconds around a fault that deletes pods or stops the API server in which an end may reach nobody: the pod
#: is gone before the kubelet has written it, or before anybody could read it.
UNSEEN_S = 6.0
CLAIM = "chaos-marks"


@dataclass(frozen=True, slots=True)
class ChaosJob:
    """One job: how it comes in (submitted, Job or Pod), and of how many tasks."""

    name: str
    how: str
    tasks: int
    manifest: Object


def chaos_jobs(count: int, draw: random.Random, marks: Path) -> list[ChaosJob]:
    """Jobs of all kinds, some with a claim; the kinds are the same for each seed, the sizes are not."""
    return [_job(number, draw, marks) for number in range(count)]


def _job(number: int, draw: random.Random, marks: Path) -> ChaosJob:
    how = ("submitted", "Job", "Pod")[number % 3]
    tasks = 2 if how != "Pod" and number % 7 == 0 else 1
    name = f"chaos-{number}"
    beats = " ".join(map(str, range(draw.randrange(5, 40))))
    gpus = draw.choice((1, 2, 4, 8)) if tasks == 1 else draw.choice((1, 2))
    keys = {"starburst.io/queue": "default", "starburst.io/cloud": "never"}
    script = SCRIPT.format(mark=marks / name, beats=beats)
    manifest = job_manifest(name, script, gpus=gpus, keys=keys, volume=marks)
    spec = manifest["spec"]
    template = spec["template"]["spec"]
    template["schedulerName"] = "chakra"
    if number % 3 == 2 or number % 4 == 0:
        template["volumes"] = [{"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}}]
    if tasks > 1:
        spec |= {"parallelism": tasks, "completions": tasks}
    if number % 2:
        spec["backoffLimit"] = 6
    if how == "Pod":
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": manifest["metadata"], "spec": template}
    return ChaosJob(name, how, tasks, manifest)


def claim(marks: Path) -> list[Object]:
    """A volume of the directory with the marks, and a claim that is bound to it."""
    amount = {"storage": "1Gi"}
    common: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**common, "capacity": amount, "hostPath": {"path": str(marks)}}
    wish = {**common, "volumeName": CLAIM, "resources": {"requests": amount}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": wish},
    ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the marks of all jobs say."""

    lost: tuple[str, ...]
    #: Jobs without another try (backoffLimit 0) whose processes were killed with their node while containerd
    #: lived, which saw exit code 137: by Kubernetes' rule they have failed.
    killed: tuple[str, ...]
    #: Jobs of which more tasks came to their end than they have, with the pods that did.
    twice: tuple[str, ...]
    #: The same, of ends that nobody could see: the task is run again, as the Job controller of 1.20 does too.
    unseen: tuple[str, ...]
    #: Jobs of which more pods lived at a time than they have tasks.
    together: tuple[str, ...]
    #: Pods that began, over those that would have done without faults.
    restarts: int

    @property
    def sound(self) -> bool:
        """Whether nothing of it is wrong."""
        return not (self.lost or self.twice or self.together)


def judge(
    jobs: Iterable[ChaosJob],
    marks: Path,
    deletions: Sequence[tuple[float, float]],
    kills: Sequence[tuple[float, float]] = (),
) -> Verdict:
    """Read the marks of jobs that all should have ended.

    Args:
        deletions: when the faults of UNSEEN_S fell.
        kills: when all processes of a node were killed.
    """
    lost, killed, twice, unseen, together, restarts = [], [], [], [], [], 0
    for job in jobs:
        path = marks / job.name
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        ends = sorted((float(line[2]), line[1]) for line in lines if line[0] == "end")
        lives: dict[str, list[float]] = defaultdict(list)
        for _, pod, at in (line for line in lines if len(line) == 3):
            lives[pod].append(float(at))
        restarts += max(0, len(lives) - job.tasks)
        if len(ends) < job.tasks:
            last_s = max((at for beats in lives.values() for at in beats), default=0.0)
            once = job.manifest["spec"].get("backoffLimit", 0) == 0
            dies = once and any(began_s <= last_s <= over_s for began_s, over_s in kills)
            (killed if dies else lost).append(job.name)
        if len(ends) > job.tasks == 1:  # of a gang that lost a task the others begin anew
            known = any(is_seen(at, deletions) for at, _ in ends[:-1])
            (twice if known else unseen).append(f"{job.name}: {ends}")
        if most_at_once([(min(at), max(at)) for at in lives.values()]) > job.tasks:
            together.append(job.name)
    return Verdict(tuple(lost), tuple(killed), tuple(twice), tuple(unseen), tuple(together), restarts)


def is_seen(end_s: float, deletions: Iterable[tuple[float, float]]) -> bool:
    """Whether an end came to the server and to those who watch it, for all that faults did."""
    return not any(began_s - UNSEEN_S <= end_s <= over_s + UNSEEN_S for began_s, over_s in deletions)


def most_at_once(lives: Iterable[tuple[float, float]]) -> int:
    """The largest number of lives at a time; overlaps of up to SLACK_S are none."""
    changes = [(begin + SLACK_S, 1) for begin, end in lives if end - begin > SLACK_S]
    changes += [(end, -1) for begin, end in lives if end - begin > SLACK_S]
    living = most = 0
    for _, change in sorted(changes):
        living += change
        most = max(most, living)
    return most
