"""A cluster and a cloud in memory. What is so there is plain data and lives on when a controller dies.

Every second is one of the loop's, which is the scheduler's as well.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from starburst.core.model.actions import Slot
from starburst.core.model.events import (
    Event,
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    NodesChanged,
    OffersChanged,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from starburst.core.state import Changes
from starburst.domain.cloud import Instance, InstancePhase, Offer
from starburst.domain.job import Site, Submission
from starburst.domain.node import Node
from starburst.runs.ports import Report, Run
from tests.app.virtual import wall

#: How often a watch looks, how long a call takes, and how long anything takes to end when it is told to.
LOOK_S, CALL_S, END_S = 0.25, 0.05, 1.0

Key = tuple[str, int]


@dataclass(slots=True)
class FakeRun:
    """One attempt; it works as long as its job still has to."""

    site: Site
    slots: tuple[Slot, ...]
    checkpoint: bool
    started_at: float
    stop_at: float | None = None
    end: RunEnded | None = None


@dataclass(slots=True)
class FakeMachine:
    """A machine that was asked for; without `launched_at` none came of it."""

    offer: Offer | None
    launched_at: float | None = None
    #: Id of the store it was asked from, and when it would end by itself.
    controller: str = ""
    expires_at: float | None = None
    end_at: float | None = None
    ended: InstanceGone | None = None


@dataclass(slots=True)
class World:
    """What is really so, and what it should never have been asked for (`broken`)."""

    nodes: tuple[Node, ...] = ()
    offers: tuple[Offer, ...] = ()
    #: Seconds of work that each job still has; exit codes other than 0; machines of an offer there can be.
    work_s: dict[str, float] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    boot_s: float = 3.0
    #: When every machine of an offer is taken away.
    preempt_at: dict[str, float] = field(default_factory=dict)
    runs: dict[Key, FakeRun] = field(default_factory=dict)
    machines: dict[str, FakeMachine] = field(default_factory=dict)
    leases: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    # --- what is asked of it ----------------------------------------------------------------------------

    def start(self, site: Site, run: Run, now: float) -> None:
        self.settle(now)
        key = (run.job.id, run.attempt)
        if key in self.runs:
            return
        self.runs[key] = mine = FakeRun(site, run.slots, run.job.checkpoint, now)
        if site is Site.CLOUD and not all(self.is_ready(slot.where, now) for slot in run.slots):
            mine.end = RunEnded(*key, RunEnd.LOST, message="its machine takes no runs")
            return
        alive = [other for other, it in self.runs.items() if it.end is None]
        twins = [other for other in alive if other[0] == key[0] and other != key]
        if twins:
            self.broken.append(f"{key} was started while {twins} live")
        self.broken += self._overfull()

    def stop(self, site: Site, job_id: str, attempt: int, now: float) -> None:
        self.settle(now)
        run = self.runs.get((job_id, attempt))
        if run is None:
            end = RunEnded(job_id, attempt, RunEnd.STOPPED)
            self.runs[job_id, attempt] = FakeRun(site, (), False, now, end=end)
        elif run.stop_at is None:
            run.stop_at = now + END_S

    def launch(
        self,
        instance_id: str,
        offer: Offer,
        now: float,
        controller: str = "us",
        expires_at: float | None = None,
    ) -> None:
        self.settle(now)
        if instance_id in self.machines:
            return
        in_use = sum(
            m.offer == offer and m.launched_at is not None and not m.ended for m in self.machines.values()
        )
        sold_out = in_use >= self.capacity.get(offer.name, 1000)
        launched_at = None if sold_out else now
        self.machines[instance_id] = FakeMachine(offer, launched_at, controller, expires_at)

    def terminate(self, instance_id: str, now: float) -> None:
        self.settle(now)
        machine = self.machines.get(instance_id)
        if machine is None:
            gone = InstanceGone(instance_id, now, now)
            self.machines[instance_id] = FakeMachine(None, now, end_at=now, ended=gone)
        elif machine.end_at is None:
            machine.end_at = now + END_S

    # --- what is so -------------------------------------------------------------------------------------

    def is_ready(self, instance_id: str, now: float) -> bool:
        machine = self.machines.get(instance_id)
        if machine is None or machine.launched_at is None or machine.ended is not None:
            return False
        return now >= machine.launched_at + self.boot_s

    def settle(self, now: float) -> None:
        """Let happen what was due by now."""
        for id_, machine in self.machines.items():
            if machine.launched_at is None or machine.ended is not None or machine.offer is None:
                continue
            taken_at = self.preempt_at.get(machine.offer.name)
            preempted = taken_at is not None and machine.launched_at <= taken_at <= now
            at = taken_at if preempted else machine.end_at
            if at is not None and at <= now:
                machine.ended = InstanceGone(id_, machine.launched_at, at, preempted)
        for key, run in self.runs.items():
            if run.end is None:
                self._settle_run(key, run, now)

    def _settle_run(self, key: Key, run: FakeRun, now: float) -> None:
        code = self.exit_codes.get(key[0], 0)
        ends = [(run.started_at + self.work_s[key[0]], RunEnded(*key, RunEnd.EXITED, code))]
        if run.stop_at is not None:
            ends.append((run.stop_at, RunEnded(*key, RunEnd.STOPPED)))
        for slot in run.slots:
            machine = self.machines.get(slot.where)
            if machine is not None and machine.ended is not None:
                ends.append((machine.ended.ended_at, RunEnded(*key, RunEnd.LOST)))
        at, end = min(ends, key=lambda pair: pair[0])
        if at <= now:
            run.end = end
            if run.checkpoint and end.end is RunEnd.STOPPED:
                self.work_s[key[0]] -= at - run.started_at

    def facts(self, site: Site, now: float) -> Iterator[Event]:
        """Everything there is to report at this time."""
        self.settle(now)
        if site is Site.CLUSTER:
            yield NodesChanged(self.nodes)
        else:
            yield OffersChanged(self.offers)
            yield from self._machine_facts(now)
        for key, run in self.runs.items():
            if run.site is site:
                yield RunStarted(*key)
                if run.end is not None:
                    yield run.end

    def _machine_facts(self, now: float) -> Iterator[Event]:
        for id_, machine in self.machines.items():
            if machine.ended is not None:
                yield machine.ended
            elif machine.launched_at is None:
                yield InstanceFailed(id_, "sold out", sold_out=True)
            elif self.is_ready(id_, now):
                yield InstanceReady(id_, machine.launched_at)

    def listing(self) -> Iterator[Instance]:
        for id_, machine in self.machines.items():
            if machine.offer is not None and machine.launched_at is not None:
                phase = InstancePhase.READY if machine.ended is None else InstancePhase.GONE
                ended_at = None if machine.ended is None else machine.ended.ended_at
                yield Instance(
                    id_,
                    machine.offer.name,
                    phase,
                    machine.launched_at,
                    ended_at,
                    controller=machine.controller,
                    expires_at=machine.expires_at,
                )

    def _overfull(self) -> Iterable[str]:
        alive = (run for run in self.runs.values() if run.end is None)
        used: Counter[str] = Counter()
        for slot in (slot for run in alive for slot in run.slots):
            used[slot.where] += slot.resources.gpus
        gpus = {node.name: node.capacity.gpus for node in self.nodes}
        return [f"{name} is overfull" for name, count in used.items() if count > gpus.get(name, 1000)]


#: Told of every call, before and after it took effect; may raise.
Hook = Callable[[str], None]


@dataclass(slots=True)
class FakeSite:
    """One controller's connection to a site of a world; does for a cluster and for a cloud."""

    world: World
    site: Site
    hook: Hook = lambda _what: None
    #: Calls by name (and their subjects) in order, for tests to look at.
    calls: list[str] = field(default_factory=list)
    #: Id of the store its controller has.
    controller: str = "us"

    async def start(self, run: Run) -> None:
        await self._call(
            f"start {run.job.id}/{run.attempt}", lambda now: self.world.start(self.site, run, now)
        )

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        await self._call(
            f"stop {job_id}/{attempt}", lambda now: self.world.stop(self.site, job_id, attempt, now)
        )

    async def launch(self, instance_id: str, offer: Offer) -> None:
        await self._call(
            f"launch {instance_id}",
            lambda now: self.world.launch(instance_id, offer, now, self.controller),
        )

    async def prepare(self, run: Run) -> None:
        await self._call(f"prepare {run.job.id}/{run.attempt}", lambda _: None)

    async def terminate(self, instance_id: str) -> None:
        await self._call(f"terminate {instance_id}", lambda now: self.world.terminate(instance_id, now))

    def newest(self, job_id: str) -> int:
        self.world.settle(wall())
        runs = self.world.runs.items()
        there = (key for key, run in runs if run.site is self.site and run.end is None)
        return max((attempt for job, attempt in there if job == job_id), default=0)

    def nudge(self) -> None:
        self.calls.append("nudge")

    def judged(self, submissions: Mapping[str, Submission]) -> Sequence[Event]:
        return ()

    def told(self, changes: Changes) -> None:
        """Nobody looks here."""

    async def renew(self, instance_ids: list[str]) -> None:
        machines = self.world.machines
        ours = {id_ for id_, machine in machines.items() if machine.controller in (self.controller, "")}
        self.world.leases.update(ours.intersection(instance_ids))

    async def owned(self) -> list[Instance]:
        self.world.settle(wall())
        return list(self.world.listing())

    async def watch(self, report: Report) -> None:
        told = set(self.world.facts(self.site, wall()))
        for event in self.world.facts(self.site, wall()):
            report(event)
        runs = frozenset(key for key, run in self.world.runs.items() if run.site is self.site)
        report(SiteSynced(self.site, runs, frozenset(self.world.machines)))
        while True:
            await asyncio.sleep(LOOK_S)
            for event in self.world.facts(self.site, wall()):
                if event not in told:
                    told.add(event)
                    report(event)

    async def _call(self, what: str, effect: Callable[[float], None]) -> None:
        self.calls.append(what)
        self.hook(f"before {what}")
        await asyncio.sleep(CALL_S)
        effect(wall())
        self.hook(f"after {what}")
