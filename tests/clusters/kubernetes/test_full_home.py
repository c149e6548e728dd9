"""A full disk of Starburst's home while jobs run on a cluster: what ends meanwhile has ended once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from starburst.aio import SerialThread
from starburst.app.daemon.controller import Controller
from starburst.app.jobs.intake import JobIntake
from starburst.clusters.kubernetes.cluster import KubernetesCluster
from starburst.clusters.kubernetes.options import ClusterOptions
from starburst.clusters.kubernetes.runs.stalls import StartLimits
from starburst.core.model.settings import Settings
from starburst.core.views.restoring import restore
from starburst.domain.clock import Pace
from starburst.domain.job import Site
from starburst.kube.resources import JOBS
from starburst.store.errors import DiskFullError
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.app.fakes import FakeSite
from tests.app.fakes import World as CloudWorld
from tests.clusters.kubernetes.scene import Scene, a_job, play

_run = SerialThread.run


async def _run_patiently(thread: SerialThread, call: Callable[[], Any]) -> Any:
    """Virtual time stands still while a thread works, as it does for calls of the server."""
    loop: Any = asyncio.get_running_loop()
    loop.calls += 1
    try:
        return await _run(thread, call)
    finally:
        loop.calls -= 1


class Home:
    """A store whose transactions fail at their end, and are undone, while the disk is full."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.full, write = path, False, Store.write
        #: A connection of a user's.
        self.users: Store | None = None

        @contextmanager
        def scarce(store: Store) -> Iterator[Connection]:
            with write(store) as conn:
                yield conn
                if self.full:
                    raise DiskFullError("the disk is full")

        monkeypatch.setattr(Store, "write", scarce)
        monkeypatch.setattr(SerialThread, "run", _run_patiently)

    def phases(self) -> list[str]:
        assert self.users is not None
        return sorted(row.phase for row in queries.jobs(self.users))

    @asynccontextmanager
    async def starburst(self, scene: Scene) -> AsyncIterator[asyncio.Task[None]]:
        """The live scheduler on the scene's cluster, until the end of the block."""
        loop = asyncio.get_running_loop()
        began = scene._clock() - loop.time()
        with ExitStack() as stack:
            store, intake, self.users = (stack.enter_context(Store.open(self.path)) for _ in range(3))
            scheduler = restore(Settings(returns="never"), store.snapshot())
            cluster = KubernetesCluster(
                scene._connect,
                JobIntake(store, intake, scheduler),
                ClusterOptions(
                    controller="store-1",
                    tenancy=scene.tenancy,
                    limits=StartLimits(30.0, 300.0),
                    logs=self.path.parent,
                    read=scene._read,
                    clock=scene._clock,
                ),
            )
            sites = cluster, FakeSite(CloudWorld(), Site.CLOUD, lambda _: None)
            controller = Controller(store, scheduler, *sites, Pace(), wall=lambda: began + loop.time())
            stop = asyncio.Event()
            task = asyncio.create_task(controller.run(stop))
            try:
                yield task
            finally:
                stop.set()
                await asyncio.wait([task])


def test_what_ends_while_the_home_is_full_has_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "starburst.db", monkeypatch)

    async def act(scene: Scene) -> None:
        async with home.starburst(scene) as task:
            for name in "abc":
                scene.world.add(JOBS, a_job(name, args=("5", "0")))
            await scene.until(lambda: scene.running() == 3)
            home.full = True
            scene.world.add(JOBS, a_job("late"))
            await scene.pass_time(12)  # a, b and c end meanwhile
            assert not task.done()
            assert len(scene.world.ran) == 3, "nothing starts that is not stored"
            home.full = False
            await scene.until(lambda: home.phases() == ["succeeded"] * 4)
        assert len(scene.world.ran) == 4

    play(tmp_path, act, watching=False, minor="31")


def test_what_ends_while_it_is_full_and_nothing_runs_here_has_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "starburst.db", monkeypatch)

    async def act(scene: Scene) -> None:
        async with home.starburst(scene):
            scene.world.add(JOBS, a_job("a", args=("5", "0")))
            await scene.until(lambda: scene.running() == 1)
            home.full = True
            await scene.pass_time(12)
        home.full = False
        async with home.starburst(scene):
            await scene.until(lambda: home.phases() == ["succeeded"])
        assert len(scene.world.ran) == 1

    play(tmp_path, act, watching=False, minor="31")
