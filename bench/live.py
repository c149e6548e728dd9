"""The live scheduler in virtual time: real controller, core, store, outbox and web pages; simulated sites.

What is not as in production: the sites (bench/sites.py, bench/cloud.py), the users (bench/users.py) and the
clock; looks for news are as far apart as LOOK_S says, for in weeks of virtual time there is mostly none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import structlog

from bench.cloud import SimCloud
from bench.sites import Luck, Plan, SimCluster
from bench.users import Users
from bench.virtual import VirtualLoop
from starburst.app.config import Config, parse_config
from starburst.app.config.home import Home
from starburst.app.daemon.controller import Controller, Surroundings
from starburst.app.daemon.process_resources import keep_memory_flat
from starburst.app.daemon.prune import prune
from starburst.app.daemon.retention import keep_small
from starburst.app.daemon.shortages import ShortageRetry
from starburst.app.jobs.caps_view import open_books
from starburst.app.wiring.build import reaping
from starburst.app.wiring.bus import outbox_of
from starburst.bus.outbox import follow
from starburst.core.state import Changes
from starburst.core.views.restoring import restore
from starburst.domain.clock import Pace
from starburst.runs.ports import Report
from starburst.store.store import Store

#: A Monday; windows of caps and days of bills are those of the calendar.
START = 1_767_571_200.0
#: Virtual seconds between news of the sites, looks for requests, looks at the log, and rounds of the reaper.
NEWS_S, LOOK_S, FOLLOW_S, REAP_S = 60.0, 60.0, 120.0, 300.0
#: Jobs are kept a day in place of thirty, so instances two more in place of 62: no cap is of more than a day.
INSTANCE_S = 2 * 86_400.0
#: What the scheduler may remember when all jobs are over.
LASTING = ("paused offers",)
ENDS = ("succeeded", "failed", "cancelled")
#: All jobs and bills, those that are rolled up too.
JOBS = (
    "(SELECT phase, cloud_micro_usd FROM jobs UNION ALL SELECT phase, cloud_micro_usd FROM history) AS them"
)
PAST_BILLS = "UNION ALL SELECT id, micro_usd FROM past_instances"

GPU = {"gpu_type": "V100"}
OFFERS = (
    {"name": "one", "gpus": 1, "cpus": 8, "memory_gib": 61, "usd_per_hour": 3.06, **GPU},
    {"name": "four", "gpus": 4, "cpus": 32, "memory_gib": 244, "usd_per_hour": 12.24, **GPU},
    {"name": "eight", "gpus": 8, "cpus": 64, "memory_gib": 488, "usd_per_hour": 24.48, **GPU},
    {"name": "spot", "gpus": 4, "cpus": 32, "memory_gib": 244, "usd_per_hour": 4.9, "spot": True, **GPU},
    {"name": "plain", "gpus": 0, "cpus": 8, "memory_gib": 32, "usd_per_hour": 0.36},
)


def config_of(nodes: int) -> Config:
    """Everything at once: caps, queues with shares, packing, moves, returns, a calibrated budget."""
    gpus = 8 * nodes
    return parse_config(
        {
            "policy": {"waiting": "compute", "budget_percent": 25, "budget_mode": "calibrated"}
            | {
                "order": "fair",
                "packer": "stratus",
                "pack_window": "2m",
                "pack_period": "15m",
                "max_passes": 300,
            },
            "cluster": {
                "nodes": [{"name": "n", "count": nodes, "gpus": 8, "cpus": 40, "memory_gib": 240, **GPU}]
            },
            "cloud": {"offers": [{**offer, "boot": "2m", "setup": "1m"} for offer in OFFERS], "lease": "15m"},
            "home": {"keep": "1d"},
            "bus": {"keep": "1d"},
            "queues": [
                {"name": "research", "share": 3},
                {"name": "papers", "share": 2, "budget_percent": 10},
                {"name": "vision"},
                {"name": "batch", "share": 0.5},
            ],
            "caps": [
                {"usd": 0.40 * 24 * gpus * 3.06, "per": "day", "then": "finish"},
                {"usd": 0.20 * gpus * 3.06, "per": "hour", "queue": "vision", "then": "return"},
                {"usd": 0.06 * 24 * gpus * 3.06, "per": "day", "user": "user-00", "then": "stop"},
            ],
        },
        "soak",
    )


class Life:
    """One scheduler and all that goes on around it, on a home of its own."""

    def __init__(
        self,
        home: Home,
        store: Store,
        *,
        jobs: int,
        nodes: int,
        load: float,
        seed: int,
        coarse: float = 1.0,
        validates: bool = False,
        rolls_up: bool = False,
    ) -> None:
        """`coarse`: how many times as rarely as else something is heard of the sites.

        `validates`: the state is checked before each commit. `rolls_up`: jobs that ended a day ago are.
        """
        self._rolls_up = rolls_up
        self._validates = validates
        self.home, self.store = home, store
        self.config = config_of(nodes)
        self.plans: dict[str, Plan] = {}
        luck, known = Luck(), self.config.cluster.known_nodes()
        look_s = coarse * NEWS_S
        self.cluster = SimCluster(known, self.plans, luck, seed, home, look_s=look_s)
        self.cloud = SimCloud(
            self.config.cloud.known_offers(),
            self.plans,
            luck,
            seed,
            home,
            look_s=look_s,
            controller=str(store.fact("controller")),
            lease_s=900.0,
        )
        self.cluster.rivals, self.cloud.rivals = [self.cloud], [self.cluster]
        self.users = Users(jobs, 8 * nodes, load, seed, self.plans)
        self.scheduler = restore(self.config.settings(), store.snapshot())
        open_books(store, self.scheduler, START)
        store.set_fact("config", self.config.model_dump(mode="json"))
        store.set_fact("clock", {"origin": 0.0, "speed": 1.0, "start": 0.0})
        self.cluster.listeners.append(self._note)
        #: Steps stored, jobs that ended, machines given back, decisions told to the listener, prunings.
        self.steps = self.ended = self.told = self.prunings = 0
        #: Jobs that ended again.
        self.twice: list[str] = []
        self.decided: Counter[str] = Counter()
        #: Called at every step.
        self.on_step: Callable[[], None] = lambda: None
        self._all_over = asyncio.Event()

    async def run(self, *, to_the_end: bool = True) -> None:
        """Until every job is over and nothing is rented, or only until all are submitted."""
        controller = Controller(
            self.store,
            self.scheduler,
            self.cluster,
            self.cloud,
            Pace(),
            wall=asyncio.get_running_loop().time,
            around=Surroundings(
                reaping=reaping(self.config, self.store),
                prune=self._prune,
                companion=self._listen,
                validates=self._validates,
            ),
        )
        stop = asyncio.Event()
        with Store.open(self.home.database) as asked:  # users are other processes
            beside = [
                asyncio.create_task(self.users.submit(asked)),
                asyncio.create_task(self.cluster.trouble()),
            ]
            if self._rolls_up:
                beside.append(asyncio.create_task(keep_small(self.store, self._keeps_from, ShortageRetry())))
            going = asyncio.create_task(controller.run(stop))
            over = asyncio.create_task(self._all_over.wait())
            users = beside[0]
            await asyncio.wait([going, over, users], return_when=asyncio.FIRST_COMPLETED)
            if users.done():
                users.result()
                if not to_the_end:
                    self._all_over.set()
                await asyncio.wait([going, over], return_when=asyncio.FIRST_COMPLETED)
            if to_the_end and not going.done():
                await asyncio.sleep(1200)  # for late reports, and for the listener
            stop.set()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await going

    def _note(self, changes: Changes) -> None:
        self.steps += 1
        self.decided.update(decision.kind for decision in changes.decisions)
        for decision in changes.decisions:
            if decision.kind in ENDS:
                self.ended += 1
                if self.plans.pop(decision.subject, None) is None:
                    self.twice.append(decision.subject)
        self.on_step()
        if self.users.done.is_set() and not self.plans and not self.scheduler.state.fleet.instances:
            self._all_over.set()

    async def _prune(self, jobs: Collection[str], machines: Collection[str]) -> None:
        self.prunings += 1
        await prune(self.home, time.time() - self.config.home.keep, jobs, machines)

    def _keeps_from(self) -> float:
        return self.scheduler.state.now - self.config.home.keep

    async def _listen(self, report: Report) -> None:
        """Takes in what a broker would be told."""
        with Store.open(self.home.database) as store:
            outbox = outbox_of(store, self.config.bus)
            async for batch in follow(outbox, outbox.cursor()):
                self.told = batch.cursor.seq
                await asyncio.sleep(0.01)
                outbox.settle(batch.cursor)

    @property
    def lag(self) -> int:
        """Decisions that the listener has not been told of."""
        return self.scheduler.state.decided - self.told

    def wrong(self) -> list[str]:
        """What is not as it must be at the end."""
        scheduler, bills = self.scheduler, self.cloud.billed()
        with self.store.read() as conn:
            billed = conn.exec_driver_sql(f"SELECT id, micro_usd FROM instances {PAST_BILLS}")
            books: dict[str, int] = {row[0]: row[1] for row in billed}
            counted = conn.exec_driver_sql(f"SELECT phase, count(*) FROM {JOBS} GROUP BY phase")
            phases: dict[str, int] = {row[0]: row[1] for row in counted}
            paid = conn.exec_driver_sql(f"SELECT coalesce(sum(cloud_micro_usd), 0) FROM {JOBS}").scalar_one()
        jobs = self.users.submitted
        checks = {
            "broken by the sites": self.cluster.broken + self.cloud.broken,
            "jobs that did not end": {phase: n for phase, n in phases.items() if phase not in ENDS},
            "jobs, stored jobs, ends": {jobs, sum(phases.values()), self.ended} - {jobs},
            "ended twice": self.twice,
            "rented": list(self.cloud.machines),
            "alive": [*self.cluster.live, *self.cloud.live],
            "bills that differ": sorted(
                {*bills.items()} ^ {*((k, v) for k, v in books.items() if k in bills or v)}
            ),
            "micro-dollars that no job paid": sum(bills.values()) - paid,
            "settled by the scheduler": scheduler.state.fleet.settled.micro_usd - paid,
            "owed": self.store.pending_actions(),
            "decisions that nobody was told": self.lag,
            "left in the scheduler": {
                name: n for name, n in self.sizes().items() if n and name not in LASTING
            },
        }
        return [f"{what}: {str(found)[:300]}" for what, found in checks.items() if found]

    def sizes(self) -> dict[str, int]:
        """Lengths of all that the scheduler keeps in memory."""
        s = self.scheduler
        return {
            "jobs": len(s.state.jobs),
            "queue": len(s.state.queue),
            "instances": len(s.state.fleet.instances),
            "paused offers": len(s.state.fleet.paused),
            "dependants": len(s.state.dependants),
            "departing": len(s.state.departing),
            "homesick": len(s.state.homesick),
            "capped": len(s.state.capped),
            "patient": len(s.state.patient),
            "deadlines": len(s.state.deadlines.heap),
            "looks": len(s.state.looks.heap),
            "pauses": len(s.state.pauses.heap),
            "freed": len(s.state.freed),
            "retired": len(s.state.retired),
        }


@contextmanager
def virtual_world(home: Home, coarse: float) -> Iterator[VirtualLoop]:
    """A loop whose time is everybody's, and nothing written to the terminal."""
    home.make()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    loop = VirtualLoop(START)
    with ExitStack() as stack:
        for name, value in (
            ("time.time", loop.time),
            ("starburst.app.daemon.controller.POLL_S", coarse * LOOK_S),
            ("starburst.app.daemon.controller.REAP_S", REAP_S),
            ("starburst.bus.outbox.POLL_S", coarse * FOLLOW_S),
            ("starburst.store.upkeep.rollup.INSTANCE_S", INSTANCE_S),
        ):
            stack.enter_context(patch(name, value))
        asyncio.set_event_loop(loop)
        try:
            yield loop
        finally:
            asyncio.set_event_loop(None)
            loop.close()
            structlog.reset_defaults()


@contextmanager
def lived(
    root: Path,
    *,
    jobs: int,
    nodes: int,
    load: float,
    seed: int,
    coarse: float = 1.0,
    to_the_end: bool = True,
    validates: bool = False,
    rolls_up: bool = False,
    watch: Callable[[Life], AbstractContextManager[object]] = nullcontext,
) -> Iterator[Life]:
    """A life in a new home, when it is over; `watch` is entered before it and left after it."""
    home = Home(root)
    keep_memory_flat()
    with virtual_world(home, coarse) as loop, Store.open(home.database) as store:

        async def go() -> Life:
            life = Life(
                home,
                store,
                jobs=jobs,
                nodes=nodes,
                load=load,
                seed=seed,
                coarse=coarse,
                validates=validates,
                rolls_up=rolls_up,
            )
            with watch(life):
                await life.run(to_the_end=to_the_end)
            return life

        yield loop.run_until_complete(go())
