"""The outcome of a pod from the states of its containers: the exit code that counts, and a reason."""

from __future__ import annotations

from typing import NamedTuple

from starburst.kube.resources import Object

#: Phases of a pod that is over.
OVER = ("Succeeded", "Failed")
#: The reason of a pod that is called Succeeded although a container of it never ran.
NEVER_RAN = "NeverRan"
#: Reasons of containers with which nothing is wrong.
USUAL = frozenset({"Completed", "ContainerCreating", "PodInitializing"})


class PodOutcome(NamedTuple):
    """The outcome so far. `exit_code` is the highest of the ended containers, None while none has ended.

    `ended_at` is when the last container of a pod that is over ended, as the API writes it; "" if not known.
    """

    phase: str
    exit_code: int | None
    reason: str
    message: str
    ended_at: str = ""


def outcome(spec: Object, status: Object) -> PodOutcome:
    """Of a pod's spec and status.

    Init containers count when they failed, for then the others never start. Sidecars do not: they are killed
    when the work is done. What ended the whole pod ("Evicted", "DeadlineExceeded") comes before what its
    containers say.

    A kubelet that is killed when it has created a container and not yet started it can call its pod Succeeded
    afterwards (seen on 1.20.2): the container has exit code 0 there, no times and no reason. That pod has
    failed.
    """
    phase = status.get("phase") or "Pending"
    if phase == "Succeeded" and any(map(_never_ran, status.get("containerStatuses") or ())):
        message = "it is called Succeeded, but its container has neither a start nor an end"
        return PodOutcome("Failed", None, NEVER_RAN, message)
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    ended: list[Object] = []
    waiting: list[Object] = []
    working = False
    for container in status.get("initContainerStatuses") or ():
        state = container.get("state") or {}
        if (end := state.get("terminated")) and end.get("exitCode") and container.get("name") not in sidecars:
            ended.append(end)
        if state.get("waiting"):
            waiting.append(state["waiting"])
        working = working or ("running" in state and container.get("name") not in sidecars)
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if state.get("terminated"):
            ended.append(state["terminated"])
        if state.get("waiting"):
            waiting.append(state["waiting"])
    worst = max(ended, key=_code, default=None)
    told = _told(worst, waiting)
    if told.get("reason") == "PodInitializing" and not working:
        told = {
            **told,
            "reason": "ContainerCreating",
        }  # all init containers are done: nothing else holds it up
    return PodOutcome(
        phase,
        None if worst is None else _code(worst),
        status.get("reason") or told.get("reason") or "",
        status.get("message") or told.get("message") or "",
        _last_end(status) if phase in OVER else "",
    )


def _last_end(status: Object) -> str:
    """Unknown if one container has an end without a time, may still run, or was to run once more."""
    last = ""
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            state = container.get("state") or {}
            end = state.get("terminated")
            if end is not None and end.get("finishedAt"):
                last = max(last, end["finishedAt"])
            elif end is not None or "running" in state or container.get("lastState"):
                return ""
    return last


def _never_ran(container: Object) -> bool:
    end = (container.get("state") or {}).get("terminated")
    return end is not None and not any(map(end.get, ("startedAt", "finishedAt", "reason", "exitCode")))


def _code(end: Object) -> int:
    return int(end.get("exitCode") or 0)


def _told(worst: Object | None, waiting: list[Object]) -> Object:
    """The state that says most: a bad end, then what holds a container up, then that it is on its way."""
    if worst is not None and worst.get("reason") not in (None, "Completed"):
        return worst
    held_up = (state for state in waiting if state.get("reason") not in USUAL)
    return next(held_up, waiting[0] if waiting else {})
