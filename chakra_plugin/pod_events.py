"""What people hear of a pod: events on it, and its condition PodScheduled, at a rate nobody feels.

Each pod has one event per reason, whose count and message change; a crowd of waiting pods is told in turn.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import structlog

from chakra_plugin.directives import Hold
from chakra_plugin.scheduling_queue import QueuedPod, SchedulingQueue
from chakra_plugin.waiting import news
from starburst.kube.api import STRATEGIC, Api
from starburst.kube.errors import ApiError, UnreachableError
from starburst.kube.objects import PodView
from starburst.kube.resources import EVENTS, PODS, Object

log = structlog.get_logger()

#: Turns per second (each tells of a pod that waits and of one that was bound), and how many after a silence.
RATE, BURST = 30.0, 60
#: Events of bindings that wait to be written; older ones are dropped.
BACKLOG = 2_000
#: Seconds before a pod hears other words, and before it hears the same again; events live for an hour.
OTHER_WORDS_S, SAME_WORDS_S = 10.0, 600.0
#: Seconds between looks at who is to be told what.
LOOK_S, IDLE_S = 0.5, 60.0

NORMAL, WARNING = "Normal", "Warning"


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event, and the condition that goes with it if the pod cannot be placed."""

    pod: PodView
    kind: str
    reason: str
    message: str
    condition: bool = False


@dataclass(frozen=True, slots=True)
class LastEvent:
    """What a pod was told last, and when, in epoch seconds."""

    message: str
    at: float


def event_of(entry: QueuedPod, message: str) -> PodEvent:
    """Of a pod that waits: held pods are nobody's failure."""
    if isinstance(entry.standing, Hold):
        return PodEvent(entry.pod, NORMAL, "Waiting", message)
    return PodEvent(entry.pod, WARNING, "FailedScheduling", message, condition=True)


def due(reasons: Iterable[tuple[QueuedPod, str]], told: dict[str, LastEvent], now: float) -> list[str]:
    """Who is to be told now, by uid: first those who know nothing yet."""
    first, again = [], []
    for entry, message in reasons:
        uid = entry.pod.uid
        before = told.get(uid)
        if before is None and entry.pod.unschedulable == message:
            told[uid] = LastEvent(message, now)  # by a Chakra before this one
        elif before is None:
            first.append(uid)
        elif now - before.at >= (OTHER_WORDS_S if message != before.message else SAME_WORDS_S):
            again.append(uid)
    return first + again


class PodEventReporter:
    """Tells; it is never in the way: who wants something told does not wait for it."""

    def __init__(
        self,
        api: Api,
        component: str,
        queue: SchedulingQueue,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api = api
        self._component = component
        self._queue = queue
        self._clock = clock
        self._sleep = sleep
        self._told: dict[str, LastEvent] = {}
        self._counts: dict[str, int] = {}
        self._waiting: deque[str] = deque()
        self._once: deque[PodEvent] = deque(maxlen=BACKLOG)
        self._news = asyncio.Event()
        self._allowance, self._counted_at = float(BURST), clock()

    def tell(self, report: PodEvent) -> None:
        """Something that happened once."""
        self._once.append(report)
        self._news.set()

    def look(self) -> None:
        """Pods may have something new to hear."""
        self._news.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await news(self._news, IDLE_S)
            self._news.clear()
            self._gather()
            while self._waiting or self._once:
                await self._pace()
                if self._waiting:
                    await self._tell_waiting(self._waiting.popleft())
                if self._once:
                    await self._write(self._once.popleft())
            await self._sleep(LOOK_S)

    def _gather(self) -> None:
        waiting = list(self._queue.reasons())
        present = {entry.pod.uid for entry, _ in waiting}
        self._told = {uid: told for uid, told in self._told.items() if uid in present}
        found = due(waiting, self._told, self._clock())
        self._waiting.extend(found[:BURST])
        if len(found) > BURST:
            self._news.set()  # the others have their turn, if they still wait then

    async def _pace(self) -> None:
        now = self._clock()
        self._allowance = min(BURST, self._allowance + max(0.0, now - self._counted_at) * RATE)
        self._counted_at = now
        if self._allowance < 1:
            await self._sleep((1 - self._allowance) / RATE)
        self._allowance -= 1

    async def _tell_waiting(self, uid: str) -> None:
        """What is so of a pod by now; nothing if it waits no more."""
        entry, message = self._queue.entries.get(uid), self._queue.reason(uid)
        if entry is None or not message:
            return
        self._told[uid] = LastEvent(message, self._clock())
        report = event_of(entry, message)
        if await self._write(report) and report.condition and uid not in self._queue.entries:
            # It was placed meanwhile, and our word may have come after the binding.
            await self._write(replace(report, reason=""), scheduled=True)
            self._told.pop(uid, None)

    async def _write(self, report: PodEvent, *, scheduled: bool = False) -> bool:
        """Whether it could be written."""
        try:
            if report.condition:
                await self._set_condition(report, scheduled)
            if report.reason:
                await self._event(report)
        except (ApiError, UnreachableError) as error:
            if not (isinstance(error, ApiError) and error.status in (404, 409)):  # the pod is gone
                log.warning("not-reported", pod="/".join(report.pod.key), error=str(error))
            return False
        return True

    async def _set_condition(self, report: PodEvent, scheduled: bool) -> None:
        condition: Object = {"type": "PodScheduled", "status": str(scheduled)}
        condition |= {"lastTransitionTime": _time(self._clock()), "reason": None, "message": None}
        if not scheduled:
            condition |= {"reason": "Unschedulable", "message": report.message}
        body = {"metadata": {"uid": report.pod.uid}, "status": {"conditions": [condition]}}
        namespace, name = report.pod.key
        await self._api.patch(PODS, namespace, name, body, sub="status", kind=STRATEGIC)

    async def _event(self, report: PodEvent) -> None:
        """One event for a pod and a reason: made the first time, counted up later."""
        namespace = report.pod.namespace
        name = _event_name(report)
        event = self._first_event(report, name)
        if name not in self._counts:
            try:
                await self._api.create(EVENTS, namespace, event)
                self._remember(report, name, 1)
                return
            except ApiError as error:
                if error.status != 409:  # of a Chakra before this one
                    raise
            before = await self._api.find(EVENTS, namespace, name)
            self._counts[name] = int((before or {}).get("count") or 0)
        count = self._counts[name] + 1
        changed = {"count": count, "message": report.message, "lastTimestamp": event["lastTimestamp"]}
        try:
            await self._api.patch(EVENTS, namespace, name, changed)
            self._remember(report, name, count)
        except ApiError as error:
            if error.status != 404:
                raise
            self._counts.pop(name, None)  # it outlived its hour
            await self._api.create(EVENTS, namespace, event)

    def _remember(self, report: PodEvent, name: str, count: int) -> None:
        if report.reason == "FailedScheduling":
            self._counts[name] = count
        if len(self._counts) > BACKLOG:
            self._counts.clear()  # the server knows them, too

    def _first_event(self, report: PodEvent, name: str) -> Object:
        pod, now = report.pod, _time(self._clock())
        about = {"kind": "Pod", "apiVersion": "v1", "namespace": pod.namespace, "name": pod.name}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "involvedObject": {**about, "uid": pod.uid},
            "type": report.kind,
            "reason": report.reason,
            "message": report.message,
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _event_name(report: PodEvent) -> str:
    told = hashlib.sha256(f"{report.pod.uid} {report.reason}".encode()).hexdigest()[:16]
    return f"{report.pod.name[:230]}.{told}"


def _time(now: float) -> str:
    return datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
