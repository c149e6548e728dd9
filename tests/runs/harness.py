"""Runs to start, and a watcher that waits for what they report."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from starburst.core.model.actions import Slot
from starburst.core.model.events import Event, RunEnded, RunStarted, SiteSynced
from starburst.domain.job import Job, Site, Workload
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import RankDir, attempts_under
from starburst.runs.ports import Report, Run
from starburst.runs.processes import ProcessRunner, RunHost

PATIENCE_S = 20.0

E = TypeVar("E")


class Watchable(Protocol):
    async def watch(self, report: Report) -> None: ...


class Reports:
    """What a site reported so far."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Event()

    def take(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def first(self, kind: type[E], check: Callable[[E], bool] = lambda _event: True) -> E:
        """The first report of this kind that meets the check, now or as soon as it comes."""

        async def look() -> E:
            while True:
                self._news.clear()
                for event in self.of(kind):
                    if check(event):
                        return event
                await self._news.wait()

        return await asyncio.wait_for(look(), PATIENCE_S)

    async def started(self, job_id: str = "job", attempt: int = 1) -> RunStarted:
        return await self.first(RunStarted, lambda e: (e.job_id, e.attempt) == (job_id, attempt))

    async def ended(self, job_id: str = "job", attempt: int = 1) -> RunEnded:
        return await self.first(RunEnded, lambda e: (e.job_id, e.attempt) == (job_id, attempt))


@asynccontextmanager
async def watching(site: Watchable) -> AsyncIterator[Reports]:
    """Watch a site until the block ends, from its SiteSynced on."""
    reports = Reports()
    task = asyncio.create_task(site.watch(reports.take))
    synced = asyncio.create_task(reports.first(SiteSynced))
    await asyncio.wait({task, synced}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if task.done():
            task.result()
        yield reports
    finally:
        for one in (task, synced):
            one.cancel()
        await asyncio.gather(task, synced, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody reports."""

    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), PATIENCE_S)


def a_run(
    *command: str,
    job_id: str = "job",
    attempt: int = 1,
    gpus: tuple[int, ...] = (0,),
    where: str = "n1",
    grace_s: float = 5.0,
    env: dict[str, str] | None = None,
    working_dir: str | None = None,
    time_limit_s: float | None = None,
) -> Run:
    """A run with one task per entry of `gpus`, all at one place."""
    tasks = tuple(Resources(count) for count in gpus)
    return Run(
        Job(job_id, job_id, tasks, grace_s=grace_s),
        attempt,
        tuple(Slot(rank, where, resources) for rank, resources in enumerate(tasks)),
        Workload(command, tuple((env or {}).items()), working_dir, time_limit_s=time_limit_s),
    )


def shell(script: str, **kwargs: object) -> Run:
    return a_run("sh", "-c", script, **kwargs)  # type: ignore[arg-type]


def untimed(end: RunEnded) -> RunEnded:
    """An end without when it was."""
    return replace(end, ended_at=None)


PLACES = {"n1": RunHost(4), "n2": RunHost(2)}


def a_runner(root: Path) -> ProcessRunner:
    return ProcessRunner(root / "runs", root / "checkpoints", Site.CLUSTER)


def rank_dir(root: Path, job_id: str = "job", attempt: int = 1, rank: int = 0) -> RankDir:
    return RankDir(root / "runs" / job_id / str(attempt) / str(rank))


def log(root: Path, job_id: str = "job", attempt: int = 1, rank: int = 0) -> str:
    return (rank_dir(root, job_id, attempt, rank).path / "log").read_text()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@contextmanager
def ending_what_is_left(root: Path) -> Iterator[None]:
    """Afterwards no shim under this root, and nothing of its job, is alive."""
    try:
        yield
    finally:
        for runs in (root / "runs", root / "cloud" / "runs"):
            for attempt in attempts_under(runs):
                for rank in attempt.ranks():
                    rank.ask_stop(0)
                    while rank.alive():  # a shim that is coming up finds the stop, too
                        time.sleep(0.01)
                    rank.kill_strays()


async def scheduler_killed_when(root: Path, moment: str, script: str) -> None:
    """Run a scheduler process that starts a job, and kill -9 it at that moment (see driver.py)."""
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.runs.driver", str(root), moment, script, stdout=asyncio.subprocess.PIPE
    )
    assert driver.stdout is not None
    await asyncio.wait_for(driver.stdout.readline(), PATIENCE_S)
    if moment == "running":
        driver.kill()
    assert await asyncio.wait_for(driver.wait(), PATIENCE_S) == -signal.SIGKILL
