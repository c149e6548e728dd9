"""One run of one seed: a world, a scheduler in it, faults, and at the end the verdict."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import shutil
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from starburst.app.config.home import Home
from starburst.store.store import Step, Store
from tests.storm.explained import contradictions
from tests.storm.faults import calls, crashes, machines, nodes  # noqa: F401 - they declare themselves
from tests.storm.loop import StormLoop, of_world
from tests.storm.model.cloud import ModelCloud
from tests.storm.model.cluster import ModelCluster
from tests.storm.model.http import HttpClient
from tests.storm.model.marks import Marks
from tests.storm.process import SchedulerProcess
from tests.storm.sandbox import START, Clock, new_store, sandbox
from tests.storm.scenery import drawn_config, drawn_nodes
from tests.storm.users import Users
from tests.storm.verdict import Verdict
from tests.storm.weather import FAULTS, Weather

DAY_S = 86_400.0
#: Rows of the store with times of the real machine, as a dump of SQLite has them: how long steps took, and
#: when the lead was renewed, by the database's own clock.
MEASURED = ("INSERT INTO \"facts\" VALUES('steps'", 'INSERT INTO "leader"')
#: Once nothing goes wrong any more all is over within this, virtual seconds: a window of a cap and its jobs.
CALM_S = 2 * DAY_S


@dataclass(frozen=True, slots=True)
class Ask:
    """What to run. `faults`: only these; None draws which."""

    seed: int
    jobs: int = 60
    days: float = 1.0
    faults: frozenset[str] | None = None


@dataclass(slots=True)
class Told:
    """What came of it."""

    ask: Ask
    wrong: list[str]
    counts: Counter[str]
    #: Of everything that was stored, and struck, in order.
    digest: str
    story: list[tuple[float, str]]
    virtual_s: float
    cpu_s: float
    lives: int
    on: list[str] = field(default_factory=list)
    #: How often the verdict looked at what.
    checked: Counter[str] = field(default_factory=Counter)


class Storm:
    """The world of one run; faults act on it."""

    def __init__(self, ask: Ask, loop: StormLoop, clock: Clock, root: Path) -> None:
        self.ask, self.loop, self.clock = ask, loop, clock
        self.draw = Random(f"{ask.seed}/world")
        self.weather = Weather(ask.seed, ask.faults, loop.time)
        self.marks = Marks()
        self.cluster = ModelCluster(self.weather, self.marks, ask.seed)
        self.cloud = ModelCloud(root / "machines", self.weather, self.marks, ask.seed)
        self.nodes = drawn_nodes(ask.seed)
        home = Home(root / "home")
        home.make()
        #: The name of the scheduler on its clouds.
        self.controller = Random(f"{ask.seed}/controller").randbytes(4).hex()
        new_store(home.database, self.controller)
        config = drawn_config(ask.seed)
        self.process = SchedulerProcess(loop, home, config, self.cluster, self.cloud)
        self.broker = self.process.broker
        self.process.heard = self._heard
        self.users = Users(ask.seed, ask.jobs, 0.7 * ask.days * DAY_S, self.cluster, max(self.nodes.values()))
        self.verdict = Verdict(self)
        self.users.phases = self.verdict.phases
        self.story: list[tuple[float, str]] = []
        self._digest = hashlib.sha256()

    async def run(self) -> None:
        """From the first job to the last bill."""
        for name, gpus in self.nodes.items():
            self.cluster.add_node(name, gpus)
        self.cluster.begin()
        with self.process.models(), Store.open(self.process.home.database) as asked:
            self.users.http = HttpClient(self.process.home, asked, self.weather)
            self.process.start()
            await asyncio.sleep(5.0)
            winds = [
                asyncio.create_task(self.weather.blow(self, name))
                for name in sorted(self.weather.on)
                if FAULTS[name].act is not None
            ]
            winds += map(asyncio.create_task, (self._keep_up(), self._watch_bills(), self._ask(asked)))
            days = asyncio.create_task(self._days(asked))
            await asyncio.wait([days, self.process.hopeless], return_when=asyncio.FIRST_COMPLETED)
            for task in [*winds, days]:
                task.cancel()
            if days.done() and not days.cancelled():
                days.result()
        self.process.kill()
        self.verdict.at_the_end()
        with closing(sqlite3.connect(self.process.home.database)) as store:
            rows = (row for row in store.iterdump() if not row.startswith(MEASURED))
            self._digest.update("\n".join(rows).encode())

    async def _days(self, asked: Store) -> None:
        wishing = asyncio.create_task(self.users.meddle(asked))
        try:
            handing_in = asyncio.create_task(self.users.submit(asked))
            await asyncio.sleep(self.ask.days * DAY_S)
            await handing_in
        finally:
            wishing.cancel()
        self.weather.is_calm = True
        self._mend()
        await self._until_over(asked)

    def _mend(self) -> None:
        """Whatever is broken works again, and there are no caps any more."""
        self.cluster.away_until = 0.0
        self.broker.up, self.process.disk_says = True, ""
        self.cluster.silent.clear()
        self.cloud.server_up = True
        self.cloud.clock_off_s, self.clock.off_s, self.cloud.prices = 0.0, 0.0, 1
        self.cloud.answers()
        for vm in self.cloud.alive():
            vm.plugged = True
        for name, gpus in self.nodes.items():
            nodes.restore(self, name, gpus)
        # A job that no cap can pay would wait for ever. Else what hangs may hang on: no restart heals it.
        if self.process.config.caps or self.draw.random() < 0.5:
            self.process.config = self.process.config.model_copy(update={"caps": []})
            self.process.kill()
            self.process.start()

    async def _until_over(self, asked: Store) -> None:
        give_up = self.loop.time() + CALM_S
        while self.loop.time() < give_up:
            self.users.let_go(asked)
            await asyncio.sleep(1800.0)
            if self.verdict.is_over(asked):
                if self.broker.arrived:  # which the last decisions come to a while later
                    await asyncio.sleep(300.0)
                self.verdict.remembered()
                return
        self.verdict.wrong.append(f"not over {CALM_S / DAY_S:g} days after the last fault")
        self.verdict.unfinished(asked)

    async def _keep_up(self) -> None:
        """What systemd does: a process that is down is started again."""
        while True:
            most_s = 30.0 if self.process.is_short else 120.0
            await asyncio.sleep(self.draw.uniform(2.0, most_s))
            if self.process.is_short and (self.weather.is_calm or self.draw.random() < 0.3):
                self.process.start()

    async def _watch_bills(self) -> None:
        while True:
            await asyncio.sleep(600.0)
            self.marks.settle()
            self.verdict.meanwhile()

    async def _ask(self, asked: Store) -> None:
        """Users ask why their jobs are where they are."""
        draw = Random(f"{self.ask.seed}/explained")
        while True:
            await asyncio.sleep(draw.expovariate(1 / 2700.0))
            for job_id, wrong in contradictions(asked, draw):
                self.verdict.checked["explanations"] += 1
                self.verdict.wrong += [f"{job_id}: {wrong}"] if wrong else []

    def _heard(self, step: Step) -> None:
        now = self.loop.time()
        for decision in step.changes.decisions:
            line = f"{decision.subject}: {decision.reason}"
            self.story.append((now, line))
            self._digest.update(f"{now:.6f} {line}\n".encode())
            if decision.kind == "launched":
                self._regret(str(decision.numbers["jobs"]).partition(",")[0])
        self.verdict.stored(step)

    def _regret(self, job_id: str) -> None:
        """Its user may cancel it while a machine comes up for it."""
        if self.weather.strikes("regretted", job_id):
            after_s = self.weather.draw("regretted").uniform(0.0, 60.0)
            of_world(lambda: self.loop.call_later(after_s, self.users.regret, job_id))

    def told(self, cpu_s: float) -> Told:
        """The result."""
        for at, name, subject in self.weather.struck:
            self._digest.update(f"{at:.6f} {name} {subject}\n".encode())
            self.story.append((at, f"FAULT {name} {subject}"))
        self.story.sort(key=lambda row: row[0])
        return Told(
            self.ask,
            self.verdict.wrong,
            self.weather.counts,
            self._digest.hexdigest(),
            self.story,
            self.loop.time() - START,
            cpu_s,
            self.loop.lives,
            sorted(self.weather.on),
            self.verdict.checked,
        )


def run(ask: Ask) -> Told:
    """Run a seed in memory; nothing of it stays."""
    told = _run(ask)
    _set_aside()
    return told


def _run(ask: Ask) -> Told:
    root, often = new_root(), gc.get_threshold()
    gc.set_threshold(200_000, 50, 1000)  # a tenth of the time goes there otherwise
    try:
        with sandbox(ask.seed) as (loop, clock):
            return told_of(ask, loop, clock, root)
    finally:
        gc.set_threshold(*often)
        shutil.rmtree(root, ignore_errors=True)


@cache
def _set_aside() -> None:
    """What a process has after its first run, such as modules, is not looked through at the end of each.

    What belongs to a run that was not over yet would stay for ever.
    """
    gc.collect()
    gc.freeze()


def new_root() -> Path:
    """A directory for the files of a run, in memory where that can be."""
    return Path(mkdtemp(prefix="storm-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))


def told_of(ask: Ask, loop: StormLoop, clock: Clock, root: Path) -> Told:
    """Run a seed within its `sandbox`."""
    began = time.process_time()
    storm = Storm(ask, loop, clock, root)
    loop.run_until_complete(storm.run())
    return storm.told(time.process_time() - began)
