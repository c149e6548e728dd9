"""A cluster for the live scheduler, simulated, and what it has in common with a cloud (bench/cloud.py).

They fail, preempt, refuse and lose, by a seed. Both are adapters like any other (starburst/runs/ports.py);
what they keep is bounded by what is alive, so that a process never grows by anything of theirs, and what was
billed goes to a file. Seconds are those of the loop, which are the scheduler's as well.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from starburst.app.config.home import Home
from starburst.core.model.actions import Slot
from starburst.core.model.events import (
    Event,
    NodesChanged,
    Progress,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from starburst.core.state import Changes
from starburst.domain.job import Site, Submission
from starburst.domain.node import Node
from starburst.runs.attempt_dir import AttemptDir
from starburst.runs.ports import Cluster, Report, Run, RunSite

HOUR_S = 3600.0
#: Runs and machines that are over and of which it is still known that they were there.
REMEMBERED = 500

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Luck:
    """How likely things go wrong: per call, run or launch, or per hour of a machine or of the cluster."""

    call_fails: float = 0.005
    run_lost: float = 0.004
    run_displaced: float = 0.004
    reported_twice: float = 0.01
    sold_out: float = 0.04
    launch_fails: float = 0.02
    costs_more: float = 0.01
    spot_taken: float = 0.1
    machine_dies: float = 0.002
    cut_off: float = 0.01
    node_away: float = 0.1


@dataclass(slots=True)
class Plan:
    """What a job will do: seconds of work it still has, and how many of its runs fail first."""

    work_s: float
    fails: int = 0
    #: It says how far it is.
    tells: bool = False


@dataclass(slots=True)
class LiveRun:
    """An attempt of which something is alive."""

    run: Run
    #: When its work began; None while it starts.
    began: float | None = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    stopping: bool = False


class Past(dict[Any, None]):
    """The last so many things."""

    def add(self, item: object) -> None:
        """One more; the oldest is forgotten."""
        self[item] = None
        if len(self) > REMEMBERED:
            del self[next(iter(self))]


class SimSite(RunSite):
    """Runs, on whatever they run. What must never happen is noted in `broken`."""

    site: Site

    def __init__(self, plans: dict[str, Plan], luck: Luck, seed: int, root: Path, look_s: float) -> None:
        """`plans`: of every job that is not over; `root`: where ended runs leave a directory.

        Things happen at multiples of `look_s`, as they are heard of where a site is asked again and again.
        """
        self._look_s = look_s
        self.plans = plans
        self.luck = luck
        self.broken: list[str] = []
        self.live: dict[Key, LiveRun] = {}
        self.used: Counter[str] = Counter()
        self.rivals: list[SimSite] = []
        self._past = Past()
        self._root = root
        self._draw = Random(f"{seed}/{type(self).__name__}")
        self._report_to: Report | None = None

    async def start(self, run: Run) -> None:
        """See the port."""
        await self._call(lambda: self._start(run))

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """See the port."""
        await self._call(lambda: self._stop((job_id, attempt), grace_s))

    def newest(self, job_id: str) -> int:
        """See the port."""
        return max((attempt for job, attempt in self.live if job == job_id), default=0)

    async def watch(self, report: Report) -> None:
        """See the port."""
        self._report_to = report
        for event in self.facts():
            report(event)
        await asyncio.Event().wait()

    def nudge(self) -> None:
        """Nothing: a hint."""

    async def prepare(self, run: Run) -> None:
        """Nothing: the start does it."""

    def facts(self) -> list[Event]:
        """What is so."""
        return [SiteSynced(self.site, frozenset(self.live))]

    def is_up(self, where: str) -> bool:
        """Whether a run may start there."""
        raise NotImplementedError

    def gpus(self, where: str) -> int:
        """How many there are."""
        raise NotImplementedError

    # What runs do.

    def _start(self, run: Run) -> None:
        key = (run.job.id, run.attempt)
        if key in self.live or key in self._past:
            return
        for other in (self, *self.rivals):
            twins = [twin for twin in other.live if twin[0] == run.job.id]
            if twins:
                self.broken.append(f"{key} was started while {twins} live")
        mine = self.live[key] = LiveRun(run)
        self._hold(run.slots, 1)
        if not all(self.is_up(slot.where) for slot in run.slots):
            self._end(key, RunEnded(*key, RunEnd.LOST, message="its machine takes no runs"))
            return
        self._after(mine.timers, self._draw.uniform(1, 20), lambda: self._begin(key))

    def _begin(self, key: Key) -> None:
        mine, plan = self.live[key], self.plans[key[0]]
        mine.began = now_of_loop()
        self.report(RunStarted(*key))
        work_s, chance = plan.work_s, self._draw.random()
        if plan.tells:
            told = Progress(*key, done=0.1, total=1.0, per_s=1 / work_s)
            self._after(mine.timers, work_s / 10, lambda: self.report(told))
        if chance < self.luck.run_lost + self.luck.run_displaced:
            what = RunEnd.LOST if chance < self.luck.run_lost else RunEnd.DISPLACED
            end, work_s = RunEnded(*key, what, message="its host went away"), work_s * self._draw.random()
        elif plan.fails:
            end, work_s = RunEnded(*key, RunEnd.EXITED, 1), work_s * self._draw.random()
        else:
            end = RunEnded(*key, RunEnd.EXITED, 0)
        self._after(mine.timers, work_s, lambda: self._end(key, end))

    def _stop(self, key: Key, grace_s: float) -> None:
        end = RunEnded(*key, RunEnd.STOPPED)
        mine = self.live.get(key)
        if mine is None:
            if key not in self._past:
                self._past.add(key)
                self.report(end)
        elif not mine.stopping:
            mine.stopping = True
            cancel(mine.timers)
            self._after(mine.timers, min(grace_s, self._draw.uniform(0.5, 60)), lambda: self._end(key, end))

    def _end(self, key: Key, end: RunEnded) -> None:
        mine, plan = self.live.pop(key), self.plans.get(key[0])
        cancel(mine.timers)
        self._hold(mine.run.slots, -1)
        self._past.add(key)
        if (
            plan is not None
            and end.end is RunEnd.STOPPED
            and mine.run.job.checkpoint
            and mine.began is not None
        ):
            plan.work_s = max(1.0, plan.work_s - (now_of_loop() - mine.began))
        if plan is not None and end.exit_code:
            plan.fails -= 1
        attempt = AttemptDir.of(self._root, *key).path
        attempt.mkdir(parents=True)
        leave(attempt / "end.json", {"end": end.end.value})
        self.report(end)

    def lose(self, where: str, end: RunEnd, message: str) -> None:
        """A node or machine is gone: who had nothing else is dead; what is left of a gang gets nowhere."""
        for key in [key for key, it in self.live.items() if any(s.where == where for s in it.run.slots)]:
            mine = self.live[key]
            if all(slot.where == where for slot in mine.run.slots) or end is RunEnd.DISPLACED:
                self._end(key, RunEnded(*key, end, message=message))
            elif not mine.stopping:
                cancel(mine.timers)

    def _hold(self, slots: Sequence[Slot], sign: int) -> None:
        for slot in slots:
            self.used[slot.where] += sign * slot.resources.gpus
            if sign > 0 and self.used[slot.where] > self.gpus(slot.where):
                self.broken.append(f"{slot.where} is overfull")
            if not self.used[slot.where]:
                del self.used[slot.where]

    # How the world is.

    def report(self, event: Event) -> None:
        """Tell the scheduler, now and then twice."""
        if self._report_to is not None:
            self._report_to(event)
            if self._draw.random() < self.luck.reported_twice:
                asyncio.get_running_loop().call_later(self._draw.uniform(1, 600), self._report_to, event)

    async def _call(self, effect: Callable[[], None]) -> None:
        await asyncio.sleep(self._draw.uniform(0.05, 0.5))
        chance = self._draw.random()
        if chance < self.luck.call_fails / 2:
            refuse()
        effect()
        if chance < self.luck.call_fails:
            refuse()

    def _after(self, timers: list[asyncio.TimerHandle], pause_s: float, do: Callable[[], None]) -> None:
        at = self._look_s * math.ceil((now_of_loop() + pause_s) / self._look_s)
        timers.append(asyncio.get_running_loop().call_at(at, do))


class SimCluster(SimSite, Cluster):
    """Nodes, of which one is away now and then."""

    site = Site.CLUSTER

    def __init__(
        self,
        nodes: Sequence[Node],
        plans: dict[str, Plan],
        luck: Luck,
        seed: int,
        home: Home,
        *,
        look_s: float,
    ) -> None:
        super().__init__(plans, luck, seed, home.cluster, look_s)
        self.nodes = {node.name: node for node in nodes}
        #: Told of every stored step.
        self.listeners: list[Callable[[Changes], None]] = []

    def facts(self) -> list[Event]:
        """What is so."""
        return [NodesChanged(tuple(self.nodes.values())), *super().facts()]

    def judged(self, submissions: Mapping[str, Submission]) -> Sequence[Event]:
        """See the port."""
        return ()

    def told(self, changes: Changes) -> None:
        """See the port."""
        for listener in self.listeners:
            listener(changes)

    async def trouble(self) -> None:
        """For ever, take a node away for a while, with all that runs there."""
        while True:
            await asyncio.sleep(self._draw.expovariate(self.luck.node_away / HOUR_S))
            name = self._draw.choice(sorted(self.nodes))
            self._set(name, up=False)
            self.lose(name, RunEnd.DISPLACED, f"{name} was drained")
            await asyncio.sleep(self._draw.uniform(600, 7200))
            self._set(name, up=True)

    def is_up(self, where: str) -> bool:
        """Whether a run may start there; one that was on its way as the node was drained may."""
        return where in self.nodes

    def gpus(self, where: str) -> int:
        """How many there are."""
        return self.nodes[where].capacity.gpus

    def _set(self, name: str, *, up: bool) -> None:
        self.nodes[name] = replace(self.nodes[name], schedulable=up)
        self.report(NodesChanged(tuple(self.nodes.values())))


def leave(path: Path, fact: dict[str, object]) -> None:
    """Write what an embedded site writes of what is over, as old as the loop's clock says."""
    path.write_text(json.dumps(fact), encoding="utf-8")
    os.utime(path, (now_of_loop(), now_of_loop()))


def now_of_loop() -> float:
    """Seconds since the epoch, by the running loop."""
    return asyncio.get_running_loop().time()


def cancel(timers: list[asyncio.TimerHandle]) -> None:
    """They do not happen any more."""
    for timer in timers:
        timer.cancel()
    timers.clear()


def refuse() -> NoReturn:
    """A call that fails."""
    raise ConnectionError("no answer")
