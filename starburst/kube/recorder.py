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
from starburst.kube.errors import ApiError, UnreachableError
from starburst.kube.resources import EVENTS, Object

log = structlog.get_logger()

EventType = Literal["Normal", "Warning"]

#: Characters of a message; what the newer Events API allows in a note.
LONGEST = 1024
#: Events that wait to be sent, and events whose number of repeats is remembered.
MOST = 1000
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


class Recorder:
    """Writes Events. A repeat is counted in the first and makes no other; trouble is logged, never raised."""

    def __init__(self, api: Api, component: str, *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: epoch seconds."""
        self._api = api
        self._component = component
        self._clock = clock
        self._queue: deque[tuple[ObjectReference, EventType, str, str]] = deque()
        self._filled = asyncio.Event()
        self._dropped = 0
        #: Counts of the events written last, by namespace and name.
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

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
        """Tell of an object; `reason` is one word in CamelCase, `message` a sentence."""
        body = self._body(regarding, kind, reason, message)
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            count = await self._written(namespace, name, body)
        except (ApiError, UnreachableError) as error:
            log.warning("event-not-written", of=regarding.name, reason=reason, error=str(error))
            return
        self._counts[namespace, name] = count
        self._counts.move_to_end((namespace, name))
        if len(self._counts) > MOST:
            self._counts.popitem(last=False)

    async def _written(self, namespace: str, name: str, body: Object) -> int:
        """How often it happened. Events are forgotten by the server (an hour), counts by us (a restart)."""
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
        """Whether there was such an event to count one more in."""
        change = {"count": count, "lastTimestamp": body["lastTimestamp"]}
        try:
            await self._api.patch(EVENTS, namespace, name, change)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _body(self, regarding: ObjectReference, kind: EventType, reason: str, message: str) -> Object:
        if len(message) > LONGEST:
            message = message[: LONGEST - 1] + "…"
        now = datetime.fromtimestamp(self._clock(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        # Objects without a namespace have their events in this one; the API server insists.
        namespace = regarding.namespace or "default"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": _name(regarding, kind, reason, message)},
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


def _name(regarding: ObjectReference, kind: str, reason: str, message: str) -> str:
    """The same for the same words about the same object, not one made anew under its name."""
    told = "\0".join((regarding.kind, regarding.uid, kind, reason, message))
    object_name = regarding.name[: _NAME - _HASH - 1].rstrip("-.")
    return f"{object_name}.{sha256(told.encode()).hexdigest()[:_HASH]}"
