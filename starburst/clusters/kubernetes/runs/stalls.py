"""Runs that cannot use their place, or do not leave it: why, and how long each reason is tolerated."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from starburst.clusters.kubernetes.runs.complaints import Complaint
from starburst.clusters.kubernetes.runs.evictions import why_out
from starburst.clusters.kubernetes.runs.run_object import RunObject
from starburst.kube import names
from starburst.kube.objects import JobView, NodeView, PodView

#: With these a container is on its way; a big image takes its time.
ON_ITS_WAY = ("", "ContainerCreating")
#: A container that begins and fails, or init containers at work: the command's own doing.
AT_WORK = ("CrashLoopBackOff", "PodInitializing", "Error", "Completed")
#: Warnings of kubelets with which a container stays away until somebody mends something.
SICK = ("FailedMount", "FailedCreatePodSandBox", "FailedCreatePodContainer", "Failed")
#: Two names of one state, which alternate.
_SAME = {"ImagePullBackOff": "ErrImagePull", "CreateContainerError": "CreateContainerConfigError"}
#: Wall seconds after the end of its grace before a pod counts as one that does not go.
OVERDUE_S = 15.0


@dataclass(frozen=True, slots=True)
class StartLimits:
    """Wall seconds until a run is taken back that is not bound or created, or whose containers are not up."""

    bind_s: float
    start_s: float


class Stall(NamedTuple):
    """What holds up a run."""

    #: The same while the words change.
    cause: str
    why: str
    #: Seconds after which the run is taken back; infinity: it is not.
    limit_s: float
    #: The object whose events say more, if any.
    about: JobView | PodView | None = None


@dataclass(frozen=True, slots=True)
class RunSurroundings:
    """What is known besides a run: limits, nodes, the time (epoch seconds), the last complaint about it."""

    limits: StartLimits
    node: Callable[[str], NodeView | None]
    now: float
    complaint: Complaint | None = None


def why_stalled(run: RunObject, known: RunSurroundings) -> Stall | None:
    """Why a live run cannot go on; None if nothing is wrong."""
    looks = (_not_made, _not_bound, _not_started, why_stays)
    return next((stall for look in looks if (stall := look(run, known)) is not None), None)


def why_stays(run: RunObject, known: RunSurroundings) -> Stall | None:
    """What keeps a pod of a run from ending; nothing of it starts anew before that."""
    for pod in run.active:
        node = known.node(pod.node) if pod.node else None
        if pod.node and (node is None or not node.ready):
            gone = f"the node {pod.node} is gone, and its pod {pod.name} is still listed"
            since = "" if node is None or node.unready_since is None else _clock(node.unready_since)
            silent = f"the node {pod.node} does not answer{f' since {since}' if since else ''}"
            mend = f"repair the node, or delete it: kubectl delete node {pod.node}"
            why = gone if node is None else f"{silent}; the run starts anew when its pods are gone: {mend}"
            return Stall(f"node {pod.node}", why, math.inf)
        if pod.delete_by is not None and known.now > pod.delete_by + OVERDUE_S:
            keeps = f"finalizer {', '.join(pod.finalizers)}" if pod.finalizers else f"kubelet of {pod.node}"
            why = (
                f"its pod {pod.name} is being deleted and should be gone since {_clock(pod.delete_by)}; "
                f"the {keeps} keeps it"
            )
            return Stall(f"pod {pod.name}", why, math.inf)
    if run.taken_out:
        name = run.taken_out[0].name
        mend = f"the run is over when that is: kubectl delete pod {name}"
        return Stall(f"pod {name}", f"its pod {name} was taken out of its Job and runs on; {mend}", math.inf)
    return None


def _not_made(run: RunObject, known: RunSurroundings) -> Stall | None:
    view, limit_s = run.view, known.limits.bind_s
    if not isinstance(view, JobView) or view.end:
        return None
    if view.withdrawn:
        return Stall("withdrawn", f"somebody withdrew it: the Job {view.name} is to have no pods", limit_s)
    wanted = min(view.parallelism, view.annotations.get(names.NODES, "").count(",") + 1)
    # Kubernetes may count pods that no watch has told of, or that are gone.
    made = max(len(run.pods), view.active + view.ended_pods)
    words = known.complaint.words if known.complaint else f"kubectl describe job {view.name} says why"
    if run.told_started:  # it may have done its work, or pause between tries: it is only told
        why = f"none of its pods is alive, and no other one is made: {words}"
        return None if run.active or view.active else Stall("not made again", why, math.inf, view)
    if made >= wanted:
        return None
    which = f"{wanted - made} of its {wanted} pods" if made else "its pods"
    return Stall("not made", f"{which} are not made: {words}", limit_s, view)


def _not_bound(run: RunObject, known: RunSurroundings) -> Stall | None:
    unbound = [pod for pod in run.active if not pod.node and not pod.deleting]
    if not unbound:
        return None
    for name in _nodes_for(run):
        out = why_out(name, known.node(name))
        if out:
            return Stall(f"out {name}", f"its place was taken away: {out}", 0.0)
    if _await_the_first(run, unbound):
        return None
    told = next((pod.unschedulable for pod in unbound if pod.unschedulable), "")
    why = told or f"its pod {unbound[0].name} is not bound to a node: is Chakra at work?"
    return Stall("not bound", why, known.limits.bind_s)


def _await_the_first(run: RunObject, unbound: list[PodView]) -> bool:
    """Whether Chakra binds pods once the first of their gang has an address: what holds that up counts.

    Kubelets tell of the address only once they have pulled the first image.
    """
    if any(pod.annotations.get(names.MASTER_ADDR) != "" for pod in unbound):
        return False
    first = [pod for pod in run.active if pod.annotations.get(names.RANK) == "0"]
    return any(pod.node and not pod.address and pod.phase == "Pending" for pod in first)


def _nodes_for(run: RunObject) -> list[str]:
    """The nodes that its unbound pods are meant for."""
    meant = Counter(filter(None, run.view.annotations.get(names.NODES, "").split(",")))
    meant -= Counter(pod.node for pod in run.pods.values() if pod.node and not pod.deleting and not pod.over)
    return list(meant)


def _not_started(run: RunObject, known: RunSurroundings) -> Stall | None:
    """For bound pods whose containers are not up; one with a reason counts first.

    Pods that a Job made anew after a failure count, too: their run would hold its place for ever.
    """
    waiting = [
        pod
        for pod in run.active
        if pod.node and not pod.deleting and pod.phase == "Pending" and pod.reason not in AT_WORK
    ]
    for pod in waiting:
        if pod.reason not in ON_ITS_WAY:
            words = ": ".join(filter(None, (pod.reason, pod.message)))
            cause = _SAME.get(pod.reason, pod.reason)
            return Stall(cause, f"its container waits: {words}", known.limits.bind_s)
    for pod in waiting:
        said = known.complaint
        words = said.words if said else f"kubectl describe pod {pod.name} says why"
        is_sick = said is not None and said.reason in SICK
        limit_s = known.limits.bind_s if is_sick else known.limits.start_s
        return Stall("sick" if is_sick else "not up", f"its container is not up: {words}", limit_s, pod)
    return None


def _clock(at: float) -> str:
    """An epoch time as this machine's clock shows it."""
    return time.strftime("%H:%M:%S", time.localtime(at))
