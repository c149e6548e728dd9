"""Discrete-event world around the core: an event heap, and a cluster and cloud that carry out its actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from math import inf

from starburst.core.model.actions import Action, LaunchInstance, StartRun, StopRun, TerminateInstance
from starburst.core.model.events import (
    Event,
    InstanceGone,
    InstanceReady,
    JobSubmitted,
    NodesChanged,
    OffersChanged,
    RunEnd,
    RunEnded,
    RunStarted,
    Tick,
)
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Site
from starburst.domain.node import Node
from starburst.domain.value import value

TICK = Tick()


@value
class SimJob:
    """A job, its arrival (scheduler seconds) and the duration of its command (seconds)."""

    job: Job
    arrival_s: float
    duration_s: float


@value
class Later:
    """A callback at a given time; it may return an event for the scheduler."""

    happen: Callable[[float], Event | None]


class World:
    """Runs a scheduler until all jobs have ended; deterministic, without a real clock."""

    def __init__(
        self,
        scheduler: Scheduler,
        nodes: Iterable[Node],
        offers: Iterable[Offer],
        *,
        boot_s: Mapping[str, float] | None = None,
        cloud_extra_s: float = 0.0,
        on_step: Callable[[float, Changes], None] | None = None,
    ) -> None:
        """Times in scheduler seconds.

        `boot_s`: time from launch to ready by offer name (0 if absent); `cloud_extra_s`: additional run time
        in the cloud; `on_step` is called after each step.
        """
        self.scheduler = scheduler
        self._boot_s = boot_s or {}
        self._cloud_extra_s = cloud_extra_s
        self._on_step = on_step
        self._now = -inf
        #: Jobs that have not arrived, the next one last.
        self._arrivals: list[SimJob] = []
        self._heap: list[tuple[float, int, Event | Later]] = []
        #: What happens at the present instant, in order: most answers to actions are immediate.
        self._answers: list[Event | Later] = []
        self._seq = count()
        self._work_s: dict[str, float] = {}
        self._launched: dict[str, tuple[str, float]] = {}
        #: (job id, attempt) → start time; removed when the run ends.
        self._running: dict[tuple[str, int], float] = {}
        self.at(0.0, NodesChanged(tuple(nodes)))
        self.at(0.0, OffersChanged(tuple(offers)))

    def at(self, when: float, event: Event | Later) -> None:
        """Schedule an event or a callback."""
        if when <= self._now:
            self._answers.append(event)
        else:
            heappush(self._heap, (when, next(self._seq), event))

    def submit(self, jobs: Iterable[SimJob]) -> None:
        """Schedule the arrivals of jobs; those of one instant arrive in the given order."""
        arrivals = sorted([*self._arrivals[::-1], *jobs], key=lambda job: job.arrival_s)
        self._arrivals = arrivals[::-1]

    def run(self) -> float:
        """Process events until none is left; returns the time of the last one.

        An instant may take several steps, as sites answer actions at once.
        """
        while (now := self._next_instant()) < inf:
            self._now = now
            self._step(now)
            while self._answers:
                self._step(now)
        return self._now

    def _step(self, now: float) -> None:
        for action in self.scheduler.handle(self._due(now) or TICK, now):
            self._perform(action, now)
        changes = self.scheduler.take_changes()
        if self._on_step is not None:
            self._on_step(now, changes)

    def _next_instant(self) -> float:
        """Time of the next event, arrival or decision; infinity if there is none."""
        now = self.scheduler.next_wakeup()
        if self._heap and self._heap[0][0] < now:
            now = self._heap[0][0]
        if self._arrivals and self._arrivals[-1].arrival_s < now:
            now = self._arrivals[-1].arrival_s
        return now

    def _due(self, now: float) -> list[Event]:
        """What happens at `now`, as events for the scheduler."""
        heap, arrivals = self._heap, self._arrivals
        items, self._answers = self._answers, []
        while heap and heap[0][0] <= now:
            items.append(heappop(heap)[2])
        events: list[Event] = []
        for item in items:
            if type(item) is RunEnded:
                if self._running.pop((item.job_id, item.attempt), None) is not None:
                    events.append(item)  # else it is the planned end of a run that was stopped before
            elif not isinstance(item, Later):
                events.append(item)
            elif (event := item.happen(now)) is not None:
                events.append(event)
        while arrivals and arrivals[-1].arrival_s <= now:
            arrival = arrivals.pop()
            self._work_s[arrival.job.id] = arrival.duration_s
            events.append(JobSubmitted(arrival.job))
        return events

    def _perform(self, action: Action, now: float) -> None:
        match action:
            case StartRun():
                job_id, attempt = action.job_id, action.attempt
                self._running[job_id, attempt] = now
                work_s = self._work_s[job_id] + (self._cloud_extra_s if action.site is Site.CLOUD else 0.0)
                self._answers.append(RunStarted(job_id, attempt))
                self.at(now + work_s, RunEnded(job_id, attempt, RunEnd.EXITED, 0))
            case LaunchInstance(instance_id, offer_name):
                self._launched[instance_id] = offer_name, now
                self.at(now + self._boot_s.get(offer_name, 0.0), InstanceReady(instance_id, now))
            case TerminateInstance(instance_id):
                _, launched_at = self._launched.pop(instance_id)
                self.at(now, InstanceGone(instance_id, launched_at, now))
            case StopRun(job_id, attempt, _, _):
                started = self._running[job_id, attempt]
                if self.scheduler.state.jobs[job_id].job.checkpoint:
                    self._work_s[job_id] -= now - started
                self.at(now, RunEnded(job_id, attempt, RunEnd.STOPPED))
