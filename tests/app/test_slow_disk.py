"""The controller on a slow disk, in virtual time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Engine

from starburst.aio import running
from starburst.app.daemon.controller import REAP_S
from starburst.core.model.events import NodesChanged
from starburst.runs.ports import Report
from starburst.store.store import Step, Store
from tests.app.fakes import FakeSite
from tests.app.life import a_world, living
from tests.app.virtual import run, wall
from tests.builders import job, nodes

T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "starburst.db"


DISK_S = 10.0


class SlowStore(Store):
    """A store on a disk that takes ten seconds for each call."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.turn = asyncio.Lock()

    async def in_order(self, call: Callable[[], T]) -> T:
        async with self.turn:
            await asyncio.sleep(DISK_S)
            return await super().in_order(call)


def test_a_slow_commit_holds_up_no_watch_and_no_lease(path: Path):
    async def main() -> None:
        world, looks, renewals = a_world(2), list[float](), list[float]()

        class Site(FakeSite):
            async def watch(self, report: Report) -> None:
                async def look() -> None:
                    while True:
                        looks.append(wall())
                        await asyncio.sleep(1)

                async with running(look(), "look"):
                    await super().watch(report)

            async def renew(self, instance_ids: list[str]) -> None:
                renewals.append(wall())

        async with living(path, world, cluster=Site, cloud=Site, opened=SlowStore) as life:
            life.submit(job("a"), job("b", cloud="only"))
            await life.until(a="succeeded", b="succeeded")
        assert max(b - a for a, b in pairwise(looks[::2])) == pytest.approx(1)
        assert renewals[1] - renewals[0] < REAP_S + 3 * DISK_S
        assert not world.broken

    run(main())


def test_no_action_starts_before_its_step_is_stored_however_slow_the_disk(path: Path):
    early: list[str] = []

    async def main() -> None:
        def hook(what: str) -> None:
            verb, _, of = what.removeprefix("before ").partition(" ")
            if what.startswith("before"):
                key = f"{verb}/{of}"
                early.extend([key] if key not in {action.key for action in stored.pending_actions()} else [])

        with Store.open(path) as stored:
            async with living(path, a_world(2), hook, opened=SlowStore) as life:
                life.submit(job("a"), job("b", cloud="only"))
                await life.until(a="succeeded", b="succeeded")

    run(main())
    assert not early


def test_an_end_waits_for_the_commit_that_goes_on(path: Path):
    async def main() -> list[str]:
        began, release = threading.Event(), threading.Event()

        class Stuck(Store):
            def commit(self, step: Step) -> None:
                if step.submissions:
                    began.set()
                    release.wait(5)
                super().commit(step)

        async with living(path, a_world(2), opened=Stuck) as life:
            life.submit(job("a"))
            await asyncio.to_thread(began.wait)
            life.stop.set()
            await asyncio.sleep(0.2)
            assert not life.task.done()
            assert not life.kinds("a")
            release.set()
            await asyncio.wait([life.task])
            assert not life.cluster.calls, "its actions are for the next life"
            return life.kinds("a")

    assert asyncio.run(main())


def test_a_write_lock_of_another_process_does_not_stop_the_loop(path: Path):
    async def main() -> None:
        async with living(path, a_world(2)) as life:
            await asyncio.sleep(0.5)
            ticks = 0
            with life.users.write():
                life.controller._report(NodesChanged(nodes(2)))
                until = time.monotonic() + 1
                while time.monotonic() < until:
                    ticks += 1
                    await asyncio.sleep(0.01)
            assert ticks > 20

    asyncio.run(main())
