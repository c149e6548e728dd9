"""Kubernetes Events: what `kubectl describe` shows under an object."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from typing import Literal

import structlog

from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import JobView, PodView, resource_of
from starburst.kube.resources import EVENTS, Object

log = structlog.get_logger()

EventType = Literal["Normal", "Warning"]

#: Characters of a message; what the newer Events API allows in a note.
LONGEST = 1024
#: Events that wait to be sent.
MOST = 20_000
#: Events whose number of repeats is remembered.
COUNTS_KEPT = 10_000
#: Characters of a name.
_NAME = 253
_HASH = 16


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an event is about; `namespace` is "" for those that are in none."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str


class EventWriter:
    """Writes Events. A repeat is counted in the first one and makes no other.

    What counts as a repeat: the same words about the same object, or with `one_per_reason` also other words
    for the same reason, which then replace the message. The name of an event follows from that, so a restart
    goes on counting where it left off. The server forgets events after an hour.
    """

    def __init__(self, api: Api, component: str, *, clock: Callable[[], float] = time.time) -> None:
        """`component`: the reporting program; `clock`: epoch seconds."""
        self._api = api
        self._component = component
        self._clock = clock
        #: Counts of the events written last, by namespace and name.
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def write(
        self,
        regarding: ObjectReference,
        kind: EventType,
        reason: str,
        message: str,
        *,
        one_per_reason: bool = False,
    ) -> None:
        """Write an event; `reason` is one word in CamelCase, `message` a sentence.

        Raises:
            ApiError: the server refused it.
            UnreachableError: no answer.
        """
        series = (regarding.kind, regarding.uid, kind, reason, *(() if one_per_reason else (message,)))
        body = self._body(regarding, kind, reason, message, _name(regarding, series))
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        self._counts[key] = await self._count_written(*key, body)
        self._counts.move_to_end(key)
        if len(self._counts) > COUNTS_KEPT:
            self._counts.popitem(last=False)

    async def _count_written(self, namespace: str, name: str, body: Object) -> int:
        """How often the event has happened, this time included."""
        count = self._counts.get((namespace, name))
        if count is not None and await self._raised(namespace, name, body, count + 1):
            return count + 1
        try:
            await self._api.create(EVENTS, namespace, body)
        except ApiError as error:
            if error.status != 409 or error.reason != "AlreadyExists":
                raise
        else:
            return 1
        known = await self._api.find(EVENTS, namespace, name) or {}
        count = (known.get("count") or 1) + 1
        return count if await self._raised(namespace, name, body, count) else 1

    async def _raised(self, namespace: str, name: str, body: Object, count: int) -> bool:
        """Whether there was such an event, whose count was raised."""
        change = {"count": count, "message": body["message"], "lastTimestamp": body["lastTimestamp"]}
        try:
            await self._api.patch(EVENTS, namespace, name, change)
        except ApiError as error:
            if error.absent:
                return False
            raise
        return True

    def _body(
        self, regarding: ObjectReference, kind: EventType, reason: str, message: str, name: str
    ) -> Object:
        if len(message) > LONGEST:
            message = message[: LONGEST - 1] + "…"
        now = api_time(self._clock())
        # Objects without a namespace have their events in this one; the API server insists.
        namespace = regarding.namespace or "default"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "involvedObject": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


class Recorder:
    """A queue of events and the loop that writes them. Trouble is logged, never raised."""

    def __init__(self, api: Api, component: str, *, clock: Callable[[], float] = time.time) -> None:
        """See `EventWriter`."""
        self._writer = EventWriter(api, component, clock=clock)
        self._queue: deque[tuple[ObjectReference, EventType, str, str]] = deque()
        self._filled = asyncio.Event()
        self._dropped = 0

    def put(self, regarding: ObjectReference, kind: EventType, reason: str, message: str) -> None:
        """As `event`, later and by `run`; when it cannot keep up the oldest are dropped."""
        if len(self._queue) >= MOST:
            self._queue.popleft()
            self._dropped += 1
        self._queue.append((regarding, kind, reason, message))
        self._filled.set()

    async def run(self) -> None:
        """Write what was `put`, until cancelled."""
        while True:
            await self._filled.wait()
            while self._queue:
                await self.event(*self._queue.popleft())
            if self._dropped:
                log.warning("events-dropped", count=self._dropped)
                self._dropped = 0
            self._filled.clear()

    async def event(self, regarding: ObjectReference, kind: EventType, reason: str, message: str) -> None:
        """Write an event now."""
        try:
            await self._writer.write(regarding, kind, reason, message)
        except (ApiError, ApiUnreachableError) as error:
            log.warning("event-not-written", of=regarding.name, reason=reason, error=str(error))


def reference_to(view: JobView | PodView) -> ObjectReference:
    """A Job, a pod or an object of an operator as events name it."""
    kind = "Pod" if isinstance(view, PodView) else view.operator.name if view.operator else "Job"
    return ObjectReference(kind, resource_of(view).api_version, view.namespace, view.name, view.uid)


def api_time(epoch_s: float) -> str:
    """A time as the API has it, in whole seconds."""
    return datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(regarding: ObjectReference, series: tuple[str, ...]) -> str:
    """The same for the same series of the same object, not of one made anew under its name."""
    object_name = regarding.name[: _NAME - _HASH - 1].rstrip("-.")
    return f"{object_name}.{sha256(chr(0).join(series).encode()).hexdigest()[:_HASH]}"
