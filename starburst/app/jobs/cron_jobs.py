"""CronJobs for CLI and HTTP API: stored, listed, explained, cancelled, suspended and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone, tzinfo
from functools import partial

from sqlalchemy import Connection

from starburst.app.jobs.job_keys import Keys
from starburst.app.times import iso
from starburst.domain.cron_schedule import ScheduleError, zone_of
from starburst.domain.job import Submission, is_over
from starburst.store import cron_jobs
from starburst.store.cron_jobs import CronJob
from starburst.store.listings import queries
from starburst.store.listings.pages import QueueScope
from starburst.store.store import Store

#: The word by which listings and arguments tell CronJobs from jobs, as kubectl does.
KIND = "cronjob"


def add(
    conn: Connection, submissions: Sequence[Submission], now: float, queues: QueueScope = None
) -> list[Keys]:
    """Store CronJobs; `id`, `name` and `notes` of each, its `kind`, and when it ticks next.

    They replace those of their names in `queues`, the submitter's scope.
    """
    stored = cron_jobs.put(conn, submissions, now, queues)
    return [_added(one, item, now) for one, item in zip(stored, submissions, strict=True)]


def _added(one: CronJob, item: Submission, now: float) -> Keys:
    replaces = () if one.id == item.job.id else ("replaces the CronJob of this name",)
    return {
        "id": one.id,
        "name": one.name,
        "notes": [*item.notes, *replaces],
        "kind": KIND,
        "next_at": iso(one.timing.next(now, one.created_at)),
    }


def cron_job_keys(store: Store, one: CronJob) -> Keys:
    """A CronJob of a listing."""
    timing, now = one.timing, time.time()
    return {
        "id": one.id,
        "name": one.name,
        "user": one.user,
        "queue": one.queue,
        "schedule": timing.schedule.text,
        "time_zone": timing.schedule.zone,
        "concurrency": timing.concurrency.value,
        "starting_deadline_s": timing.starting_deadline_s,
        "suspended": timing.suspended,
        "created_at": iso(one.created_at),
        "last_at": iso(one.last_tick),
        "next_at": iso(_next(one, now)),
        "jobs": unfinished(store, one),
        "message": one.message,
        "explanation": explanation(one, now),
    }


def explanation(one: CronJob, now: float) -> str:
    """Where a CronJob stands and why, in one sentence."""
    schedule, following = one.timing.schedule, _next(one, now)
    parts = [
        f"ticks at {schedule.text} ({schedule.zone})",
        "is suspended" if one.timing.suspended else "",
        "" if following is None else f"next on {tick_text(one, following)}",
        "had no tick yet" if one.last_tick is None else f"last on {tick_text(one, one.last_tick)}",
    ]
    return "; ".join(filter(None, [*parts, one.message]))


def tick_text(one: CronJob, at: float) -> str:
    """The time of a tick in the CronJob's own zone."""
    try:
        zone: tzinfo = zone_of(one.timing.schedule.zone)
    except ScheduleError:
        zone = timezone.utc
    return f"{datetime.fromtimestamp(at, zone):%d %b %Y %H:%M}"


def _next(one: CronJob, now: float) -> float | None:
    """The next tick; None while suspended, and of a time zone that this machine does not know."""
    try:
        return one.timing.next(now, one.created_at)
    except ScheduleError:
        return None


def unfinished(store: Store, one: CronJob) -> list[str]:
    """Ids of the jobs of a CronJob that have not ended."""
    if not one.jobs:
        return []
    return [row.id for row in queries.jobs(store, ids=one.jobs) if not is_over(row.phase)]


def cancel(store: Store, some: Iterable[CronJob]) -> None:
    """Remove CronJobs, and cancel their jobs that have not ended, as kubectl delete does."""
    for one in some:
        cron_jobs.remove(store, one)
        store.cancel(unfinished(store, one), time.time())


def suspend(store: Store, some: Iterable[CronJob], *, suspended: bool) -> None:
    """Stop or resume the ticks of CronJobs; jobs that there are go on."""
    for one in some:
        cron_jobs.suspend(store, one, suspended=suspended)


#: What each verb about jobs does with CronJobs.
STEER: Mapping[str, Callable[[Store, Iterable[CronJob]], None]] = {
    "cancel": cancel,
    "hold": partial(suspend, suspended=True),
    "release": partial(suspend, suspended=False),
}
