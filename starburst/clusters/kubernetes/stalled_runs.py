"""Runs that have a place and cannot use it: why, and how long each reason is tolerated."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.clusters.kubernetes.run_registry import RunObject
from starburst.kube.objects import JobView

#: With these a container is on its way; a big image takes its time.
ON_ITS_WAY = ("", "ContainerCreating")
#: A container that begins and fails, or init containers at work: the command's own doing.
AT_WORK = ("CrashLoopBackOff", "PodInitializing", "Error", "Completed")


@dataclass(frozen=True, slots=True)
class StartLimits:
    """Wall seconds until a run is taken back that is not bound or created, or whose containers are not up."""

    bind_s: float
    start_s: float


def why_stalled(unit: RunObject, limits: StartLimits) -> tuple[str, float]:
    """Why a live run cannot go on, and how long that is tolerated (seconds); ("", 0) if nothing is wrong."""
    if isinstance(unit.view, JobView) and not unit.view.end:
        if unit.view.withdrawn:
            return "somebody withdrew it", limits.bind_s
        if not unit.pods and not unit.told_started:
            return f"its pods are not made: kubectl describe job {unit.view.name} says why", limits.bind_s
    if unit.unschedulable:
        return unit.unschedulable, limits.bind_s
    return ("", 0.0) if unit.told_started else _not_starting(unit, limits)


def _not_starting(unit: RunObject, limits: StartLimits) -> tuple[str, float]:
    """For bound pods whose containers are not up; one with a reason counts first."""
    waiting = [
        pod for pod in unit.active if pod.node and pod.phase == "Pending" and pod.reason not in AT_WORK
    ]
    for pod in waiting:
        if pod.reason not in ON_ITS_WAY:
            words = ": ".join(filter(None, (pod.reason, pod.message)))
            return f"its container waits: {words}", limits.bind_s
    for pod in waiting:
        return f"its container is not up: kubectl describe pod {pod.name} says why", limits.start_s
    return "", 0.0
