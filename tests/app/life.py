"""A controller at work between a store and two fake sites, and what its users see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starburst.app.daemon.controller import Controller, Surroundings
from starburst.app.daemon.observers import StepObserver
from starburst.app.daemon.shortages import ShortageRetry
from starburst.core.model.settings import Settings
from starburst.core.views.restoring import restore
from starburst.domain.clock import Pace
from starburst.domain.job import Job, Site, Submission, Workload
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.app.fakes import FakeSite, Hook, World
from tests.app.virtual import wall
from tests.builders import nodes, offer

#: Jobs wait five seconds and never come home.
SETTINGS = Settings(waiting="constant", factor=5.0, returns="never", offer_pause_s=5.0)
WORK_S = 10.0


def a_world(*gpus: int) -> World:
    """Nodes with so many GPUs, an offer, and jobs a to e."""
    return World(nodes(*gpus), (offer("small", 2),), dict.fromkeys("abcde", WORK_S))


@dataclass
class Life:
    """A controller at work, and what its users see."""

    controller: Controller
    cluster: FakeSite
    cloud: FakeSite
    users: Store
    stop: asyncio.Event
    task: asyncio.Task[None]

    def submit(self, *jobs: Job) -> None:
        self.users.submit([Submission(item, Workload(("work",))) for item in jobs], wall())

    def phases(self) -> dict[str, str]:
        return {row.id: row.phase for row in queries.jobs(self.users)}

    def kinds(self, subject: str) -> list[str]:
        return [row.kind for row in queries.decisions(self.users, subject)]

    async def until(self, **phases: str) -> None:
        """Wait until these jobs are in these phases."""
        while not phases.items() <= self.phases().items():
            assert not self.task.done(), self.task.result()
            await asyncio.sleep(0.1)


@asynccontextmanager
async def living(
    path: Path,
    world: World,
    hook: Hook = lambda _what: None,
    *,
    cluster: type[FakeSite] = FakeSite,
    cloud: type[FakeSite] = FakeSite,
    jump_s: list[float] | None = None,
    observers: Sequence[StepObserver] = (),
    patience: ShortageRetry | None = None,
    opened: type[Store] = Store,
    **more: Any,
) -> AsyncIterator[Life]:
    """A controller from its start until it is told to stop; `jump_s` is what the wall clock is off by."""
    off = jump_s or [0.0]
    with opened.open(path) as store, Store.open(path) as users:
        scheduler = restore(SETTINGS, store.snapshot())
        us = store.fact("controller")
        sites = cluster(world, Site.CLUSTER, hook), cloud(world, Site.CLOUD, hook, controller=us)
        controller = Controller(
            store,
            scheduler,
            *sites,
            Pace(),
            wall=lambda: wall() + off[0],
            patience=patience,
            around=Surroundings(observers=observers, **{"validates": True, **more}),
        )
        stop = asyncio.Event()
        task = asyncio.create_task(controller.run(stop))
        try:
            yield Life(controller, *sites, users, stop, task)
        finally:
            stop.set()
            await asyncio.wait([task])
        task.result()
