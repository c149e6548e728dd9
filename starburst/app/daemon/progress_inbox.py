"""What runs say of themselves from afar, by HTTP or over the bus, on its way to the scheduler.

Nothing of it is written: a word that is lost is followed by another within seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from threading import Lock
from urllib.parse import quote

from starburst.aio import Wake, first_of
from starburst.app.config import Config
from starburst.app.daemon.controller import Companion
from starburst.app.daemon.shortages import Patience
from starburst.bus.hints import Outcome, RefusedError, Throughput
from starburst.core.scheduler import Scheduler
from starburst.runs.ports import Report, Run
from starburst.runs.supervisor.progress_report import VARIABLE
from starburst.store.report_tokens import make_report_key, report_token
from starburst.store.store import Store

#: The variable of the token that a run reports with.
TOKEN_VARIABLE = "STARBURST_REPORT_TOKEN"
#: Runs of which the ends of tasks are remembered, and words that may wait for the scheduler.
MOST = 10_000
#: A run is news once in so many seconds at most: each that is costs a step of the scheduler.
LEAST_S = 1.0


@dataclass(slots=True)
class _Run:
    """What the tasks of a run said last; times by the clock."""

    #: When each task ends, infinite if nobody knows, and then how slow it is.
    ends: dict[int, tuple[float, float]] = field(default_factory=dict)
    told_at: float = -inf


class Tasks:
    """Words of tasks as events: a gang is as far as the task that ends last. To be told in the loop."""

    def __init__(
        self, scheduler: Scheduler, report: Report, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler = scheduler
        self._report = report
        self._clock = clock
        self._runs: dict[tuple[str, int], _Run] = {}

    def hear(self, said: Throughput) -> None:
        """Take in what a task says; `Controller` decides whether that is any news.

        Raises:
            RefusedError: its run is over, or never was.
        """
        record = self._scheduler.current(said.job, said.attempt)
        if record is None:
            raise RefusedError(Outcome.LATE)
        if said.rank >= len(record.job.tasks):
            return  # nobody knows this task
        key, now = (said.job, said.attempt), self._clock()
        run = self._runs[key] = self._runs.pop(key, _Run())
        if len(self._runs) > MOST:  # the run not heard of for longest
            del self._runs[next(iter(self._runs))]
        left_s = inf if said.total is None else (said.total - said.done) / said.per_s
        run.ends[said.rank] = now + left_s, -said.per_s
        if run.ends[said.rank] >= max(run.ends.values()) and now - run.told_at >= LEAST_S:
            run.told_at = now
            self._report(said.event())


class Inbox:
    """Where other threads put what tasks say. One place for each task, and the latest word counts."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int], Throughput] = {}
        self._lock = Lock()
        #: Wakes up the scheduler's loop, while that goes on.
        self._wake: Callable[[], object] | None = None

    def put(self, said: Throughput) -> None:
        """Leave a word; any thread may. It is dropped if nobody takes any and there are too many."""
        with self._lock:
            known = (said.job, said.rank) in self._said
            if known or len(self._said) < MOST:
                self._said[said.job, said.rank] = said
            if self._wake is not None:
                with suppress(RuntimeError):  # the loop has just ended
                    self._wake()

    async def run(self, tasks: Tasks) -> None:
        """Hand on what comes in, until cancelled."""
        loop, news = asyncio.get_running_loop(), Wake()
        with self._lock:
            self._wake = lambda: loop.call_soon_threadsafe(news.ring)
        try:
            while True:
                with self._lock:
                    said, self._said = self._said, {}
                for word in said.values():
                    with suppress(RefusedError):  # it ended meanwhile
                        tasks.hear(word)
                await news.wait()
        finally:
            with self._lock:
                self._wake = None


def inbox_of(inbox: Inbox, scheduler: Scheduler) -> Companion:
    """Takes from the inbox what the scheduler is told."""

    async def run(report: Report) -> None:
        await inbox.run(Tasks(scheduler, report))

    return run


def together(companions: Iterable[Companion | None], patience: Patience) -> Companion | None:
    """Those that there are, as one; what the machine lacks for one of them is waited out."""
    there = [companion for companion in companions if companion is not None]

    async def run(report: Report) -> None:
        begins = {f"companion {number}": partial(each, report) for number, each in enumerate(there)}
        await first_of({name: patience.go_on(name, begin) for name, begin in begins.items()})

    return run if there else None


def reporting(config: Config, store: Store) -> Callable[[Run], Mapping[str, str]]:
    """Where a run of the cluster can say how far it is, and the token for that: as variables."""
    url = config.http.report_url
    if url is None:
        return lambda _run: {}
    key = make_report_key(store)

    def variables(run: Run) -> dict[str, str]:
        where = f"{url}/api/v1/jobs/{quote(run.job.id, safe='')}/attempts/{run.attempt}/progress"
        return {VARIABLE: where, TOKEN_VARIABLE: report_token(key, run.job.id)}

    return variables
