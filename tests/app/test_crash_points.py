"""A restart at any instruction resumes where it was: the real controller and store, crashed at every point.

The sites are data in memory that lives on, time is virtual, nothing is random. One life is recorded: before
and after each commit, each call of a site and each done mark, a copy is kept of all that a crash there would
leave. From each copy a new controller goes on to the end.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pytest
from sqlalchemy import func, select

from starburst.app.daemon import controller as controller_module
from starburst.app.daemon.controller import Controller, Surroundings
from starburst.core.model.events import RunEnd
from starburst.core.model.settings import Settings
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from starburst.domain.clock import Pace
from starburst.domain.job import Job, Phase, Site, Submission, Workload
from starburst.store.listings import queries
from starburst.store.schema import writers
from starburst.store.store import Step, Store
from starburst.store.upkeep.backup import back_up_server, discard, restore_server
from tests.app.fakes import FakeSite, World
from tests.app.virtual import START, run, wall
from tests.builders import job, nodes, offer
from tests.postgres import Server, server
from tests.volume import part_in_volume

SETTINGS = Settings(waiting="constant", factor=6.0, t_max_s=8.0, offer_pause_s=5.0, max_losses=3)

#: Arrival, seconds of work, the job: some wait, some leave, one finds its offer sold out, one comes home, ...
JOBS: tuple[tuple[float, float, Job], ...] = (
    (0.0, 14, job("fills", 2, hours=14 / 3600)),
    (0.0, 12, job("gang", gang=(1, 1), hours=12 / 3600)),
    (0.0, 30, job("comes-home", 1, hours=30 / 3600, checkpoint=True)),
    (0.0, 5, job("sold-out", 1, hours=5 / 3600)),
    (1.0, 4, job("no-gpu", 0, cpus=4)),
    (1.0, 3, job("stays", 1, cloud="never")),
    (2.0, 9, job("cancelled-early", 2)),
    (2.0, 60, job("cancelled-late", 1, hours=60 / 3600)),
    (3.0, 26, job("preempted", 2, cloud="only")),
    (3.0, 3, job("at-once", 1, max_wait_s=0.0)),
    (10.0, 3, job("fails", 1)),
    (10.0, 4, job("large-gang", gang=(2, 2))),
)
CANCELS = {"cancelled-early": 4.0, "cancelled-late": 40.0}
PHASES = {item.id: Phase.SUCCEEDED.value for *_, item in JOBS} | {
    "cancelled-early": Phase.CANCELLED.value,
    "cancelled-late": Phase.CANCELLED.value,
    "fails": Phase.FAILED.value,
}


class Crash(BaseException):
    """The process is dead."""


@dataclass
class Process:
    """A controller's process, which may die at its `crash_at`-th point; nothing it does after that counts."""

    crash_at: int | None = None
    on_point: Callable[[str], None] = lambda _what: None
    points: int = 0
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    def point(self, what: str) -> None:
        if not self.dead.is_set():
            self.points += 1
            self.on_point(what)
            if self.points == self.crash_at:
                self.dead.set()
        if self.dead.is_set():
            raise Crash


class MortalStore(Store):
    """The real store of a process that may die before or after each write."""

    process: Process

    def commit(self, step: Step) -> None:
        self.process.point("before commit")
        super().commit(step)
        self.process.point("after commit")

    def actions_done(self, keys: Sequence[str], now: float) -> None:
        self.process.point(f"before the done marks of {', '.join(keys)}")
        super().actions_done(keys, now)
        self.process.point(f"after the done marks of {', '.join(keys)}")

    def data_version(self) -> int:
        """Asks a server: in virtual time no time passes in which it could tell of a write by itself."""
        if self.path is not None:
            return super().data_version()
        with self.read() as conn:
            return int(conn.scalar(select(func.sum(writers.c.number))) or 0)


#: These tests choose their databases themselves.
pytestmark = pytest.mark.sqlite


class Place(Protocol):
    """Where stores live, and are copied."""

    #: Of so many points one is taken.
    stride: int
    root: Path

    def live(self) -> str:
        """A new store."""

    def keep(self, where: str, file: Path) -> None:
        """Copy a store that is in use to a file."""

    def heir(self, file: Path) -> str:
        """A store with what a file has."""


@dataclass
class Files:
    """Stores are files of SQLite."""

    root: Path
    stride = 1

    def live(self) -> str:
        return str(self.root / "live.db")

    def keep(self, where: str, file: Path) -> None:
        with closing(sqlite3.connect(where)) as source, closing(sqlite3.connect(file)) as target:
            source.backup(target)

    def heir(self, file: Path) -> str:
        discard(self.root / "heir.db")
        return shutil.copy(file, self.root / "heir.db")


@dataclass
class Databases:
    """Stores are databases of a PostgreSQL server; copies are made as `backup` and `restore` make them."""

    root: Path
    server: Server
    stride = 10

    def __post_init__(self) -> None:
        self._heir = self.server.create()

    def live(self) -> str:
        return self.server.create()

    def keep(self, where: str, file: Path) -> None:
        back_up_server(where, file)

    def heir(self, file: Path) -> str:
        restore_server(file, self._heir)
        return self._heir


@dataclass
class Scene:
    """All that a crash leaves: the store, the world, what the user still wants, and the time."""

    #: A database's URL or file.
    store: str
    world: World
    #: (when, job or id to cancel), in order.
    wishes: list[tuple[float, Job | str]]
    now: float = START
    what: str = "the beginning"

    def live(self, process: Process) -> None:
        """One life of a controller: to the end of all jobs, or to its death."""
        run(self._live(process), self.now)

    async def _live(self, process: Process) -> None:
        with MortalStore.open(self.store) as store, Store.open(self.store) as users:
            store.process = process
            scheduler = restore(SETTINGS, store.snapshot())
            validate(scheduler.state)
            us = store.fact("controller")
            cluster, cloud = (FakeSite(self.world, site, process.point, controller=us) for site in Site)
            around = Surroundings(validates=True)
            controller = Controller(store, scheduler, cluster, cloud, Pace(), wall=wall, around=around)
            stop = asyncio.Event()
            living = asyncio.create_task(controller.run(stop))
            user = asyncio.create_task(self._wish(users))
            over = asyncio.create_task(self._over(controller, users))
            dying = asyncio.create_task(process.dead.wait())
            await asyncio.wait([living, over, dying], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await asyncio.wait([living])
            self.now = wall()
            for task in (user, over, dying):
                task.cancel()
            if not process.dead.is_set():
                living.result()
                over.result()

    async def _wish(self, store: Store) -> None:
        while self.wishes:
            at, wish = self.wishes[0]
            await asyncio.sleep(max(0.0, START + at - wall()))
            if isinstance(wish, Job):
                store.submit([Submission(wish, Workload(("work",)))], wall())
            else:
                store.cancel([wish], wall())
            self.wishes.pop(0)

    async def _over(self, controller: Controller, store: Store) -> None:
        core = controller.scheduler
        while (
            core.state.arrivals < len(JOBS)
            or core.state.jobs
            or core.state.fleet.instances
            or store.pending_actions()
        ):
            await asyncio.sleep(0.5)

    def left(self, store: str, now: float, what: str) -> Scene:
        """The same as a crash would leave it now, with a copy of its store."""
        return Scene(store, deepcopy(self.world), list(self.wishes), now, what)

    def check(self) -> None:
        """What must be true at the end, however it was reached."""
        assert not self.world.broken
        with Store.open(self.store) as store:
            assert {row.id: row.phase for row in queries.jobs(store)} == PHASES
            kinds = ("succeeded", "failed", "cancelled")
            ends = Counter(row.subject for row in queries.decisions(store) if row.kind in kinds)
            assert ends == dict.fromkeys(PHASES, 1)
            machines = queries.instance_records(store, include_ended=True)
            paid = sum(row.cloud_micro_usd for row in queries.jobs(store))
        exits = Counter(
            key[0] for key, it in self.world.runs.items() if it.end and it.end.end is RunEnd.EXITED
        )
        assert exits == dict.fromkeys(PHASES.keys() - CANCELS.keys(), 1), "a job did its work once"
        truth = {it.id: it for it in self.world.listing()}
        assert all(it.ended_at is not None for it in truth.values()), "no machine is left"
        assert truth.keys() == {m.id for m in machines if m.launched_at is not None}, "one machine per intent"
        books = {m.id: (m.launched_at, m.ended_at) for m in machines if m.launched_at is not None}
        assert books == {id_: (it.launched_at, it.ended_at) for id_, it in truth.items()}
        assert paid == sum(m.micro_usd for m in machines) > 0


def beginning(store: str) -> Scene:
    """Before anything happened."""
    offers = (offer("plain", 0, 0.1), offer("small", 1, 1.0), offer("big", 4, 5.0))
    world = World(nodes(2, 2), offers, {item.id: work_s for _, work_s, item in JOBS}, {"fails": 3})
    world.capacity, world.preempt_at = {"small": 1}, {"big": START + 20.0}
    wishes: list[tuple[float, Job | str]] = [(at, item) for at, _, item in JOBS]
    wishes += [(at, job_id) for job_id, at in CANCELS.items()]
    return Scene(store, world, sorted(wishes, key=lambda wish: wish[0]))


@pytest.fixture(
    scope="module",
    params=[Files, pytest.param(Databases, marks=pytest.mark.postgres)],
    ids=["file", "server"],
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """SQLite and PostgreSQL, in memory if this machine has some: only processes crash here, no disks."""
    shared = Path("/dev/shm")
    with ExitStack() as stack:
        memory = TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None)
        root = Path(stack.enter_context(memory))
        yield Files(root) if request.param is Files else Databases(root, stack.enter_context(server()))


@pytest.fixture(scope="module")
def scenes(place: Place) -> list[Scene]:
    """What a crash leaves at every point of an undisturbed life, or at every tenth."""
    scene, found = beginning(place.live()), []
    points = count()

    def keep(what: str) -> None:
        if next(points) % place.stride == 0:
            file = place.root / f"{len(found)}.db"
            place.keep(scene.store, file)
            found.append(scene.left(str(file), wall(), what))

    scene.live(Process(on_point=keep))
    scene.check()
    with Store.open(scene.store) as store:
        story = {(row.kind, row.subject) for row in queries.decisions(store)}
    assert ("returning", "comes-home") in story
    assert {kind for kind, _ in story} >= {"launch-failed", "offloaded", "lost", "waits", "placed"}
    return found


SLICES = 24
#: `make test` runs so many slices, `make volume` the others.
USUAL = 5


@pytest.fixture(autouse=True)
def _fewer_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "POLL_S", 0.5)


@pytest.mark.parametrize("part", part_in_volume(SLICES, USUAL))
def test_a_crash_at_any_point_changes_nothing(scenes: list[Scene], part: int, place: Place) -> None:
    for scene in scenes[part::SLICES]:
        goes_on_to_the_end(scene, place, ())


@pytest.mark.parametrize("part", part_in_volume(SLICES, USUAL))
def test_nor_do_two_more_crashes_soon_after(scenes: list[Scene], part: int, place: Place) -> None:
    for index in range(part, len(scenes), 6 * SLICES):
        goes_on_to_the_end(scenes[index], place, (1 + index % 11, 1 + index % 7))


def goes_on_to_the_end(left: Scene, place: Place, crashes: tuple[int, ...]) -> None:
    """New controllers take over what a crash left; all but the last crash after so many of their points."""
    scene = left.left(place.heir(Path(left.store)), left.now, left.what)
    try:
        for crash_at in (*crashes, None):
            scene.now += 0.7  # it takes a while to come back
            scene.live(Process(crash_at))
        scene.check()
    except BaseException as error:
        raise AssertionError(
            f"after a crash {left.what}, {left.now - START:.2f} s into it, and {crashes}"
        ) from error
