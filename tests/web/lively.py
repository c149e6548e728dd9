"""A store in full swing at noon: jobs that wait, run on both sites, came home, failed; machines and bills."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from sim.world import SimJob, World
from starburst.app.config import Config, parse_config
from starburst.app.config.home import Home
from starburst.core.model.events import (
    Event,
    InstanceUnreachable,
    JobSubmitted,
    OffersChanged,
    RunEnd,
    RunEnded,
)
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.views.snapshot import facts
from starburst.domain.job import CloudChoice, Job, Submission, Workload
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.store import Step, Store
from starburst.web.context import AppContext
from tests.cli.past import NOON

HOUR = 3600.0
MACHINES = (
    ("p3.2xlarge", 1, 8, 61, 3.06, 12),
    ("p3.8xlarge", 4, 32, 244, 12.24, 8),
    ("p3.16xlarge", 8, 64, 488, 24.48, 2),
)
CONFIG: dict[str, Any] = {
    "policy": {"waiting": "compute", "budget_percent": 25},
    "cloud": {
        "offers": [
            {"name": name, "gpus": gpus, "gpu_type": "V100", "cpus": cpus, "memory_gib": gib}
            | {"usd_per_hour": usd, "boot": "2m", "capacity": capacity}
            for name, gpus, cpus, gib, usd, capacity in MACHINES
        ]
        + [
            {
                "name": "c7i.large",
                "cpus": 2,
                "memory_gib": 4,
                "usd_per_hour": 0.09,
                "boot": "90s",
                "capacity": 10,
            }
        ]
    },
}
#: Of what a morning costs, caps in each state.
CAPS = (
    {"usd": 40, "per": "hour"},
    {"usd": 120, "per": "day"},
    {"usd": 64, "per": "day", "queue": "research", "then": "finish"},
    {"usd": 23, "per": "day", "user": "dora", "then": "return"},
    {"usd": 500, "per": "month", "queue": "papers"},
)
NODES = (
    *(Node(f"gpu-{n}", Resources.of(8, 96, 768, "V100")) for n in range(1, 4)),
    Node("gpu-4", Resources.of(4, 48, 384, "V100"), schedulable=False),
    Node("cpu-1", Resources.of(0, 1, 2)),  # too small for the jobs without GPUs, which leave
)
NAMES = ("train-gpt", "finetune-bert", "eval-suite", "render-scene", "sweep-lr", "distill", "ablation")
PEOPLE = (("ada", "research"), ("bob", "papers"), ("chen", "research"), ("dora", "vision"))


class ItIsNoonError(Exception):
    """The world need not go on."""


class Lively:
    """The store, and the scheduler that filled it and can go on."""

    def __init__(self, home: Home, store: Store, **policy: object) -> None:
        self.app_context = AppContext(home, store)
        self.config: Config = parse_config(CONFIG | {"policy": CONFIG["policy"] | policy}, "test")
        self.scheduler = Scheduler(self.config.policy.settings())
        store.set_fact("config", self.config.model_dump(mode="json"))
        store.set_fact("clock", {"origin": time.time(), "speed": 1e-6, "start": NOON})
        self._stored: set[str] = set()

    @classmethod
    @contextmanager
    def begin(cls, root: Path, **policy: object) -> Iterator[Lively]:
        """A new one, whose clock all but stands still."""
        home = Home(root / "home")
        home.make()
        with Store.open(home.database) as store:
            yield cls(home, store, **policy)

    def morning(self, jobs: int = 100, seed: int = 7) -> None:
        """From six until noon, as the simulated world would have it."""
        world = World(
            self.scheduler,
            NODES,
            self.config.cloud.known_offers(),
            boot_s={"p3.2xlarge": 120.0, "p3.8xlarge": 160.0, "p3.16xlarge": 170.0, "c7i.large": 90.0},
            on_step=self.keep,
        )
        world.submit(some_jobs(jobs, seed))
        world.at(NOON - 3.2 * HOUR, RunEnded("distill-00012", 1, RunEnd.EXITED, 3))
        try:
            world.run()
        except ItIsNoonError:
            self.scheduler.take_changes()

    def rent_from(self, cloud: Mapping[str, object]) -> None:
        """It was started anew with this section `cloud`."""
        self.config = parse_config({**CONFIG, "cloud": cloud}, "test")
        self.app_context.store.set_fact("config", self.config.model_dump(mode="json"))
        self.tell(OffersChanged(self.config.cloud.known_offers()))

    def cap(self, *caps: Mapping[str, object]) -> None:
        """It was started anew with these caps on spending, as in a config; what was spent counts."""
        self.config = parse_config({**CONFIG, "caps": [*caps]}, "test")
        self.app_context.store.set_fact("config", self.config.model_dump(mode="json"))

    def tell(self, *events: Event, later_s: float = 0.0) -> None:
        """One more stored step, at noon or later."""
        now = NOON + later_s
        self.app_context.store.set_fact("clock", {"origin": time.time(), "speed": 1e-6, "start": now})
        self.scheduler.handle(events, now)
        self._commit(now, self.scheduler.take_changes())

    def submit(self, *jobs: Job) -> None:
        """Jobs arrive at noon."""
        self.tell(*(JobSubmitted(job) for job in jobs))

    def cut_off(self) -> str:
        """Nobody gets through to the first machine that is up; its id."""
        machine = next(m for m in self.scheduler.state.fleet.instances.values() if m.launched_at is not None)
        self.tell(InstanceUnreachable(machine.id))
        return machine.id

    def keep(self, now: float, changes: Changes) -> None:
        """Store a step of a world; none after noon."""
        if now > NOON:
            raise ItIsNoonError
        self._commit(now, changes)

    def _commit(self, now: float, changes: Changes) -> None:
        new = changes.jobs.keys() - self._stored
        self._stored |= new
        self.app_context.store.commit(
            Step(
                now=now,
                changes=changes,
                facts=facts(self.scheduler.state),
                submissions={n: Submission(changes.jobs[n].job, Workload(("true",))) for n in new},
                nodes=self.scheduler.state.capacity.nodes,
                offers=list(self.scheduler.state.fleet.offers.values()),
            )
        )


def some_jobs(count: int, seed: int) -> Iterator[SimJob]:
    """Six hours of arrivals up to noon."""
    draw = Random(seed)
    for n in range(count):
        name, (user, queue) = draw.choice(NAMES), draw.choice(PEOPLE)
        gpus = 0 if n % 15 == 9 else 8 if n % 21 == 5 else draw.choice((1, 1, 1, 1, 2, 2, 2, 4))
        hours = 3.0 if n == 12 else draw.lognormvariate(-0.1, 0.9)
        # Later jobs come closer together, so that there is a queue at noon.
        arrival = NOON - 6 * HOUR * (1 - n / count) ** 1.3 - 1
        job = Job(
            f"{name if n != 12 else 'distill'}-{n:05d}",
            name if n != 12 else "distill",
            (Resources.of(gpus, 4 * gpus or 2, 16 * gpus or 4),),
            user,
            queue,
            runtime_estimate_s=hours * HOUR * draw.uniform(0.7, 1.4) if draw.random() < 0.8 else None,
            cloud=CloudChoice.NEVER if n % 17 == 3 else CloudChoice.ONLY if n == 12 else CloudChoice.AUTO,
            checkpoint=n % 3 == 0,
        )
        yield SimJob(job, arrival, hours * HOUR)
