"""Submits the jobs of CronJobs when they tick.

What is due follows from the store and the clock alone, so a scheduler that was down, or was killed in the
middle of a tick, goes on with the last tick that was missed. The id of a tick's job is made of its minute: a
tick that is submitted again is found to be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from starburst.app.jobs.cron_jobs import tick_text, unfinished
from starburst.domain.array import member_ids
from starburst.domain.cron_schedule import ScheduleError
from starburst.domain.cron_timing import Concurrency
from starburst.runs.ports import Report
from starburst.store import cron_jobs
from starburst.store.cron_jobs import CronJob
from starburst.store.errors import DuplicateJobError
from starburst.store.quota import Quota, QuotaError
from starburst.store.store import Store
from translator.kinds.cron_job import job_of_tick

log = structlog.get_logger()

#: Longest time, seconds, until a new CronJob, or the end of a job that another one waits for, is seen.
LOOK_S = 5.0
#: What the message of a tick that has no job yet has before the reason, and of one that will have none.
WAITS, LEFT_OUT = " waits: ", " was left out when its starting deadline had passed: "


class CronTicker:
    """Looks at all CronJobs again and again."""

    def __init__(self, store: Store, wall: Callable[[], float], quota: Quota | None = None) -> None:
        """`store` is a connection of its own: the controller notices only other connections' requests."""
        self._store = store
        self._wall = wall
        self._quota = quota

    async def run(self, _report: Report) -> None:
        """Submit what is due, until cancelled."""
        while True:
            await asyncio.sleep(await self._store.in_order(self.look))

    def look(self) -> float:
        """Submit what is due; the seconds until the next look."""
        now, pause_s = self._wall(), LOOK_S
        for one in cron_jobs.every(self._store):
            try:
                pause_s = min(pause_s, self._look_at(one, now))
            except ScheduleError as error:  # the zone was known when it was submitted
                self._note(one, one.jobs, f"does not tick: {error}")
        return pause_s

    def _look_at(self, one: CronJob, now: float) -> float:
        """Submit what is due of one; the seconds until its next tick."""
        tick = one.timing.due(one.seen_until, now, one.created_at)
        if tick is not None:
            self._tick(one, tick, now)
        elif WAITS in one.message and not one.timing.suspended:
            self._note(one, one.jobs, one.message.replace(WAITS, LEFT_OUT))
        following = one.timing.next(now, one.created_at)
        return LOOK_S if following is None else following - now

    def _tick(self, one: CronJob, tick: float, now: float) -> None:
        running = unfinished(self._store, one)
        concurrency = one.timing.concurrency
        waits = f"the tick of {tick_text(one, tick)}{WAITS}"
        if running and concurrency is Concurrency.FORBID:
            self._note(one, running, f"{waits}{running[0]} has not ended")
            return
        replaced = running if concurrency is Concurrency.REPLACE else ()
        submission = job_of_tick(one.submission, tick, after=replaced)
        ids = member_ids(submission)
        try:
            self._store.submit([submission], now, self._quota)
        except QuotaError as error:
            self._note(one, running, f"{waits}{error}")
            return
        except DuplicateJobError:
            log.info("cron-tick-repeated", cron_job=one.id, job=ids[0])  # killed before it was noted
        self._store.cancel(replaced, now)
        log.info("cron-tick", cron_job=one.id, job=ids[0])
        if not cron_jobs.note(self._store, one, jobs=[*running, *ids], message="", last_tick=tick):
            self._store.cancel(ids, now)  # the CronJob was removed meanwhile

    def _note(self, one: CronJob, running: Sequence[str], message: str) -> None:
        if (message, tuple(running)) != (one.message, one.jobs):
            cron_jobs.note(self._store, one, jobs=running, message=message)
