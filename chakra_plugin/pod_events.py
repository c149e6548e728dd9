"""Reports on pods: events, and the condition PodScheduled, at a limited rate.

Each pod has one event per reason, whose count and message change. Waiting pods take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from chakra_plugin.scheduling.directives import Hold
from chakra_plugin.scheduling.queue import QueuedPod, SchedulingQueue
from starburst.aio import Wake
from starburst.kube.api import STRATEGIC, Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import PodView
from starburst.kube.recorder import EventType, EventWriter, api_time, reference_to
from starburst.kube.resources import PODS, Object

log = structlog.get_logger()

#: Turns per second (each reports on a pod that waits and one that was bound), and how many after a pause.
RATE, BURST = 30.0, 60
#: Events of bindings that wait to be written; older ones are dropped.
BACKLOG = 2_000
#: Seconds before another message on a pod, and before the same one again; events live for an hour.
OTHER_WORDS_S, SAME_WORDS_S = 10.0, 600.0
#: Seconds between looks for reports that are due.
LOOK_S, IDLE_S = 0.5, 60.0

NORMAL: Literal["Normal"] = "Normal"
WARNING: Literal["Warning"] = "Warning"


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event, and the condition that goes with it if the pod cannot be placed."""

    pod: PodView
    kind: EventType
    reason: str
    message: str
    condition: bool = False


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last message on a pod, and when it was written, in epoch seconds."""

    message: str
    at: float


def event_of(entry: QueuedPod, message: str) -> PodEvent:
    """The event of a pod that waits; that a pod is held is no failure."""
    if isinstance(entry.disposition, Hold):
        return PodEvent(entry.pod, NORMAL, "Waiting", message)
    return PodEvent(entry.pod, WARNING, "FailedScheduling", message, condition=True)


def due(reasons: Iterable[tuple[QueuedPod, str]], told: dict[str, LastEvent], now: float) -> list[str]:
    """The uids of pods on which a report is due, those without any report first."""
    first, again = [], []
    for entry, message in reasons:
        uid = entry.pod.uid
        before = told.get(uid)
        if before is None and entry.pod.unschedulable == message:
            told[uid] = LastEvent(message, now)  # reported by an earlier process
        elif before is None:
            first.append(uid)
        elif now - before.at >= (OTHER_WORDS_S if message != before.message else SAME_WORDS_S):
            again.append(uid)
    return first + again


class PodEventReporter:
    """The queue of reports and the loop that writes them; callers never wait."""

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
        self._writer = EventWriter(api, component, clock=clock)
        self._queue = queue
        self._clock = clock
        self._sleep = sleep
        self._told: dict[str, LastEvent] = {}
        self._waiting: deque[str] = deque()
        self._once: deque[PodEvent] = deque(maxlen=BACKLOG)
        self._news = Wake()
        self._allowance, self._counted_at = float(BURST), clock()

    def tell(self, report: PodEvent) -> None:
        """Queue an event that happened once."""
        self._once.append(report)
        self._news.ring()

    def look(self) -> None:
        """Look for reports that are due."""
        self._news.ring()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await self._news.wait(IDLE_S)
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
            self._news.ring()  # the others have their turn, if they still wait then

    async def _pace(self) -> None:
        now = self._clock()
        self._allowance = min(BURST, self._allowance + max(0.0, now - self._counted_at) * RATE)
        self._counted_at = now
        if self._allowance < 1:
            await self._sleep((1 - self._allowance) / RATE)
        self._allowance -= 1

    async def _tell_waiting(self, uid: str) -> None:
        """Report why a pod waits now; nothing if it does not wait any more."""
        entry, message = self._queue.entries.get(uid), self._queue.reason(uid)
        if entry is None or not message:
            return
        self._told[uid] = LastEvent(message, self._clock())
        report = event_of(entry, message)
        if await self._write(report) and report.condition and uid not in self._queue.entries:
            # It was placed meanwhile, and the condition may have been written after the binding.
            await self._write(replace(report, reason=""), scheduled=True)
            self._told.pop(uid, None)

    async def _write(self, report: PodEvent, *, scheduled: bool = False) -> bool:
        """Whether it could be written."""
        try:
            if report.condition:
                await self._set_condition(report, scheduled)
            if report.reason:
                await self._writer.write(
                    reference_to(report.pod), report.kind, report.reason, report.message, one_per_reason=True
                )
        except (ApiError, ApiUnreachableError) as error:
            if not (isinstance(error, ApiError) and (error.absent or error.status == 409)):  # the pod is gone
                log.warning("not-reported", pod="/".join(report.pod.key), error=str(error))
            return False
        return True

    async def _set_condition(self, report: PodEvent, scheduled: bool) -> None:
        condition: Object = {"type": "PodScheduled", "status": str(scheduled)}
        condition |= {"lastTransitionTime": api_time(self._clock()), "reason": None, "message": None}
        if not scheduled:
            condition |= {"reason": "Unschedulable", "message": report.message}
        body = {"metadata": {"uid": report.pod.uid}, "status": {"conditions": [condition]}}
        namespace, name = report.pod.key
        await self._api.patch(PODS, namespace, name, body, sub="status", kind=STRATEGIC)
