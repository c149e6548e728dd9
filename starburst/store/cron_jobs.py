"""CronJobs in the store: what is submitted at each tick, and what became of the last one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from starburst.domain.cron_timing import CronTiming
from starburst.domain.job import Submission
from starburst.store import codec
from starburst.store.errors import AmbiguousJobError, CronJobNotFoundError
from starburst.store.schema import cron_jobs
from starburst.store.store import Store

_every = select(cron_jobs).order_by(cron_jobs.c.created_at, cron_jobs.c.id)


@dataclass(frozen=True, slots=True)
class CronJob:
    """A stored CronJob; times are wall seconds."""

    id: str
    name: str
    user: str
    queue: str
    created_at: float
    #: The last tick whose job was submitted; None: there was none yet.
    last_tick: float | None
    #: Ids of its jobs that had not ended when it was last looked at.
    jobs: tuple[str, ...]
    #: Why its last tick has no job yet, "" if it has.
    message: str
    #: The job of each tick, under the CronJob's own id.
    submission: Submission

    @property
    def timing(self) -> CronTiming:
        """When it ticks."""
        assert self.submission.timing is not None  # else it is not stored here
        return self.submission.timing

    @property
    def seen_until(self) -> float:
        """Ticks up to this time are dealt with."""
        return max(self.created_at, self.last_tick or self.created_at)


def put(
    conn: Connection,
    submissions: Sequence[Submission],
    now_wall: float,
    queues: Sequence[str] | None = None,
) -> list[CronJob]:
    """Store CronJobs and return them as stored.

    One of the same user and name in these queues is replaced: its id, its jobs and its ticks so far stay.
    What a changed schedule would have ticked before now is not made up for.
    """
    return [_put(conn, item, now_wall, queues) for item in submissions]


def _put(conn: Connection, item: Submission, now_wall: float, queues: Sequence[str] | None) -> CronJob:
    job, timing = item.job, item.timing
    assert timing is not None  # else it is a job
    of_name = select(cron_jobs).where(cron_jobs.c.name == job.name, cron_jobs.c.user == job.user)
    if queues is not None:
        of_name = of_name.where(cron_jobs.c.queue.in_(queues))
    there = conn.execute(of_name.order_by(cron_jobs.c.queue != job.queue, cron_jobs.c.id)).first()
    said: dict[str, object] = {"queue": job.queue, "message": "", "body": codec.encode(item)}
    if there is None:
        new = {"id": job.id, "name": job.name, "user": job.user, "created_at": now_wall, "jobs": "[]"}
        conn.execute(insert(cron_jobs), {**said, **new})
    else:
        if _stored(there).timing.schedule != timing.schedule:
            said["created_at"] = now_wall
        conn.execute(update(cron_jobs).where(cron_jobs.c.id == there.id).values(said))
    put_there = job.id if there is None else there.id
    return _stored(conn.execute(select(cron_jobs).where(cron_jobs.c.id == put_there)).one())


def every(store: Store, queues: Sequence[str] | None = None) -> list[CronJob]:
    """All CronJobs, or those of these queues, in order of creation."""
    wanted = _every if queues is None else _every.where(cron_jobs.c.queue.in_(queues))
    with store.read() as conn:
        return [_stored(row) for row in conn.execute(wanted)]


def find(store: Store, text: str, queues: Sequence[str] | None = None) -> CronJob:
    """The CronJob with this id, name, or unique beginning of one, in these queues.

    Raises:
        CronJobNotFoundError: there is none.
        AmbiguousJobError: there are several.
    """
    known = every(store, queues)
    for found in (
        [one for one in known if one.id == text],
        [one for one in known if one.name == text],
        [one for one in known if one.id.startswith(text) and text],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousJobError(text, [one.id for one in found])
    raise CronJobNotFoundError(text, [one.id for one in known])


def suspend(store: Store, one: CronJob, *, suspended: bool) -> None:
    """Stop or resume the ticks of a CronJob."""
    timing = replace(one.timing, suspended=suspended)
    body = codec.encode(replace(one.submission, timing=timing))
    with store.write() as conn:
        conn.execute(update(cron_jobs).where(cron_jobs.c.id == one.id).values(body=body))


def remove(store: Store, one: CronJob) -> None:
    """Forget a CronJob; its jobs stay."""
    with store.write() as conn:
        conn.execute(delete(cron_jobs).where(cron_jobs.c.id == one.id))


def note(
    store: Store, one: CronJob, *, jobs: Iterable[str], message: str, last_tick: float | None = None
) -> bool:
    """Store what was seen and done of a CronJob; false if it was removed meanwhile."""
    values: dict[str, object] = {"jobs": json.dumps(list(jobs)), "message": message}
    if last_tick is not None:
        values["last_tick"] = last_tick
    with store.write() as conn:
        return conn.execute(update(cron_jobs).where(cron_jobs.c.id == one.id).values(values)).rowcount > 0


def _stored(row: Row[Any]) -> CronJob:
    return CronJob(
        row.id,
        row.name,
        row.user,
        row.queue,
        row.created_at,
        row.last_tick,
        tuple(json.loads(row.jobs)),
        row.message,
        codec.decode(Submission, row.body),
    )
