"""The note that Starburst itself took back the run of a bare Pod, which is gone with its marks then.

It is an Event on the Pod, for an hour: it can be written while the scheduler's disk is full, and whoever
takes over can read it.
"""

from __future__ import annotations

import structlog

from starburst.clusters.kubernetes.runs.complaints import COMPONENT, events_named
from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.core.model.events import RunEnd, RunEnded
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import PodView
from starburst.kube.recorder import EventWriter, reference_to
from starburst.kube.resources import Object

log = structlog.get_logger()

REASON = "TakenBack"
_ENDS = {end.value: end for end in RunEnd}


async def note_taken_back(api: Api, pod: PodView, key: RunKey, mark: str, *, again: bool) -> None:
    """Note how the run of a Pod that is about to be deleted ends, by its mark `stopping`.

    The Pod is deleted without a note if that is refused, or cannot be written the second time (`again`).

    Raises:
        ApiError, ApiUnreachableError: it could not be written now.
    """
    how, _, why = mark.partition(" ")[2].partition(" ")
    if how == RunEnd.STOPPED.value:
        return  # by the core, which has that in its record
    try:
        message = f"{_head(key)}{how} {why}".rstrip()
        await EventWriter(api, COMPONENT).write(reference_to(pod), "Warning", REASON, message)
    except (ApiError, ApiUnreachableError) as error:
        refused = isinstance(error, ApiError) and 400 <= error.status < 500 and error.status != 429
        if not (again or refused):
            raise
        log.warning("taken-back-unnoted", job=key[0], attempt=key[1], error=str(error))


async def end_taken_back(api: Api, key: RunKey, namespace: str, name: str) -> RunEnded | None:
    """The end of a run whose Pod Starburst deleted, if that was noted. Raises as `events_named`."""
    return end_noted(key, await events_named(api, namespace, "Pod", name))


def end_noted(key: RunKey, events: list[Object]) -> RunEnded | None:
    """The same, among the Events about Pods of its name."""
    for event in events:
        message, head = event.get("message") or "", _head(key)
        how, _, why = message.removeprefix(head).partition(" ")
        if event.get("reason") == REASON and message.startswith(head) and how in _ENDS:
            return RunEnded(*key, _ENDS[how], message=why)
    return None


def _head(key: RunKey) -> str:
    """The beginning of the message; a Pod made anew has the name of those before it."""
    return f"run {key[1]} of {key[0]}: "
