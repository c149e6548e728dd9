"""Reads what others said of an object in Events: why its pods are not made, why it does not start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import structlog

from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.core.model.events import RunStalled
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.recorder import ObjectReference
from starburst.kube.resources import EVENTS, Object, timestamp
from starburst.runs.ports import Report

T = TypeVar("T")

log = structlog.get_logger()

#: As which Starburst writes events.
COMPONENT = "starburst"
#: Wall seconds between tries when the server does not answer, and after which that is told.
PAUSE_S, TELL_S = 2.0, 10.0
UNREAD = "its object is gone, and the API server does not give the events that say who ended or deleted it"


class Complaint(NamedTuple):
    """A Warning about an object; `reason` is one word in CamelCase."""

    reason: str
    message: str

    @property
    def words(self) -> str:
        """Both, in one line."""
        return ": ".join(filter(None, (self.reason, " ".join(self.message.split()))))


async def events_about(api: Api, it: ObjectReference) -> list[Object]:
    """The Events about an object, oldest first. Returns and raises as `events_of`."""
    return await events_of(api, it.namespace, f"involvedObject.uid={it.uid}")


async def events_of(api: Api, namespace: str, fields: str) -> list[Object]:
    """The Events of a namespace that match a selector, oldest first; none if this account may not list them.

    Raises:
        ApiUnreachableError: no answer.
        ApiError: the server refused for another reason.
    """
    try:
        found = await api.list(EVENTS, namespace, fields=fields)
    except ApiError as error:
        if error.status == 403:
            return []
        raise
    return sorted(found, key=last_at)


async def events_named(api: Api, namespace: str, kind: str, name: str) -> list[Object]:
    """Those about objects of a kind and name, also former ones. Returns and raises as `events_of`."""
    found = await events_of(api, namespace, f"involvedObject.name={name}")
    return [event for event in found if (event.get("involvedObject") or {}).get("kind") == kind]


async def complaint(api: Api, it: ObjectReference, *, not_by: str) -> Complaint | None:
    """The newest Warning about an object that `not_by`, a reporting program, did not write; None without any.

    Raises as `events_about`.
    """
    for event in reversed(await events_about(api, it)):
        if event.get("type") == "Warning" and (event.get("source") or {}).get("component") != not_by:
            return Complaint(event.get("reason") or "", event.get("message") or "")
    return None


async def answered(key: RunKey, ask: Callable[[], Awaitable[T]], report: Report) -> T:
    """What events tell of a run: asked for until the server answers, without which nothing is decided.

    That it does not is reported as what holds up the run.
    """
    stalled = RunStalled(*key, UNREAD)
    telling = asyncio.get_running_loop().call_later(TELL_S, report, stalled)
    try:
        while True:
            try:
                return await ask()
            except (ApiError, ApiUnreachableError) as error:
                log.warning("events-unread", job=key[0], attempt=key[1], error=str(error))
            await asyncio.sleep(PAUSE_S)
    finally:
        telling.cancel()


def last_at(event: Object) -> float:
    """When it was last seen, epoch seconds; events of the newer API have times of their own."""
    series = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if text:
            return timestamp(text) or 0.0
    return timestamp((event.get("metadata") or {}).get("creationTimestamp")) or 0.0
