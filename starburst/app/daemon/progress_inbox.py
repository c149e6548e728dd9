"""Passes progress that runs report by HTTP or over the bus to the scheduler.

Reports are not stored: a lost report is followed by another within seconds.
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
from starburst.app.daemon.shortages import ShortageRetry
from starburst.bus.hints import HintOutcome, HintRefusedError, ThroughputHint
from starburst.core.scheduler import Scheduler
from starburst.runs.ports import Report, Run
from starburst.runs.supervisor.progress_report import VARIABLE
from starburst.store.report_tokens import make_report_key, report_token
from starburst.store.store import Store

#: Environment variable with the token of a run's reports.
TOKEN_VARIABLE = "STARBURST_REPORT_TOKEN"
#: Largest number of runs whose tasks are remembered, and of reports that wait for the scheduler.
MOST = 10_000
#: Seconds between two reports of one run that are passed on, since each costs a step of the scheduler.
LEAST_S = 1.0


@dataclass(slots=True)
class _Run:
    """The latest reports of the tasks of a run; times are of `GangProgress`'s clock."""

    #: Expected end of each task (infinite if unknown), then its negative rate to break ties.
    ends: dict[int, tuple[float, float]] = field(default_factory=dict)
    told_at: float = -inf


class GangProgress:
    """Turns reports of tasks into events of jobs: the progress of a gang is that of the task that is expected
    to end last. Not thread-safe.
    """

    def __init__(
        self, scheduler: Scheduler, report: Report, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler = scheduler
        self._report = report
        self._clock = clock
        self._runs: dict[tuple[str, int], _Run] = {}

    def hear(self, said: ThroughputHint) -> None:
        """Process a report of a task; the controller drops it if it adds nothing new.

        Raises:
            HintRefusedError: the job has no such run now.
        """
        record = self._scheduler.state.current(said.job, said.attempt)
        if record is None:
            raise HintRefusedError(HintOutcome.LATE)
        if said.rank >= len(record.job.tasks):
            return  # the job has no task of this rank
        key, now = (said.job, said.attempt), self._clock()
        run = self._runs[key] = self._runs.pop(key, _Run())
        if len(self._runs) > MOST:  # drop the run with the oldest report
            del self._runs[next(iter(self._runs))]
        left_s = inf if said.total is None else (said.total - said.done) / said.per_s
        run.ends[said.rank] = now + left_s, -said.per_s
        if run.ends[said.rank] >= max(run.ends.values()) and now - run.told_at >= LEAST_S:
            run.told_at = now
            self._report(said.event())


class ProgressInbox:
    """A mailbox with the latest report of each task; other threads put reports in."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int], ThroughputHint] = {}
        self._lock = Lock()
        #: Wakes up the scheduler's event loop; None while it does not run.
        self._wake: Callable[[], object] | None = None

    def put(self, said: ThroughputHint) -> None:
        """Put a report in. Thread-safe. A report of a new task is dropped if MOST reports wait."""
        with self._lock:
            known = (said.job, said.rank) in self._said
            if known or len(self._said) < MOST:
                self._said[said.job, said.rank] = said
            if self._wake is not None:
                with suppress(RuntimeError):  # the event loop has just been closed
                    self._wake()

    async def run(self, tasks: GangProgress) -> None:
        """Pass reports on until cancelled."""
        loop, news = asyncio.get_running_loop(), Wake()
        with self._lock:
            self._wake = lambda: loop.call_soon_threadsafe(news.ring)
        try:
            while True:
                with self._lock:
                    said, self._said = self._said, {}
                for word in said.values():
                    with suppress(HintRefusedError):  # the run ended meanwhile
                        tasks.hear(word)
                await news.wait()
        finally:
            with self._lock:
                self._wake = None


def inbox_of(inbox: ProgressInbox, scheduler: Scheduler) -> Companion:
    """The companion that passes the reports of an inbox to the scheduler."""

    async def run(report: Report) -> None:
        await inbox.run(GangProgress(scheduler, report))

    return run


def together(companions: Iterable[Companion | None], patience: ShortageRetry) -> Companion | None:
    """All companions as one, None if there are none; each is restarted after a shortage."""
    there = [companion for companion in companions if companion is not None]

    async def run(report: Report) -> None:
        begins = {f"companion {number}": partial(each, report) for number, each in enumerate(there)}
        await first_of({name: patience.go_on(name, begin) for name, begin in begins.items()})

    return run if there else None


def reporting(config: Config, store: Store) -> Callable[[Run], Mapping[str, str]]:
    """A function that gives the environment variables with which a cluster run reports progress: URL and
    token.
    """
    url = config.http.report_url
    if url is None:
        return lambda _run: {}
    key = make_report_key(store)

    def variables(run: Run) -> dict[str, str]:
        where = f"{url}/api/v1/jobs/{quote(run.job.id, safe='')}/attempts/{run.attempt}/progress"
        return {VARIABLE: where, TOKEN_VARIABLE: report_token(key, run.job.id)}

    return variables
