"""Bounds the size of the database: what ended long ago becomes a short row of history.

A pass is a series of small transactions, between which steps of the scheduler commit. It may be cut off
anywhere: the next one goes on. Counters of `/metrics` do not change (store/counters.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, or_, select

from starburst.core.model.jobs import JobRecord
from starburst.domain.resources import total
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.store import ENDED_JOBS, LIVE_INSTANCES, Store

#: Jobs per transaction, and rows of logs.
JOBS, ROWS = 50, 500
#: Seconds for which an instance is kept at least: caps add up the bills of a month.
INSTANCE_S = 62 * 86_400.0
#: Wall seconds after which the name of a connection's last write is of no use.
WRITER_S = 86_400.0
#: Key of the fact that holds the number up to which the decision log is pruned.
PRUNED = "decisions-pruned"


def roll_up(store: Store, before: float, now_wall: float) -> Iterator[int]:
    """Roll up what ended before a scheduler time; each step is a transaction, and yields its removed rows.

    Jobs go with their decisions, instances with theirs, and events, actions and other decisions by age.
    """
    yield from _jobs(store, before)
    yield from _instances(store, before - INSTANCE_S)
    yield from _decisions(store, before)
    yield from _events(store, before)
    yield from _actions(store, before)
    with store.write() as conn:
        removed = conn.execute(delete(t.writers).where(t.writers.c.at < now_wall - WRITER_S)).rowcount
    yield removed


def _jobs(store: Store, before: float) -> Iterator[int]:
    """In order of arrival, since no job ends before it was submitted; each job is looked at once a pass."""
    c, after = t.jobs.c, (float("-inf"), -1)
    while True:
        later = or_(c.submitted_at > after[0], and_(c.submitted_at == after[0], c.seq > after[1]))
        columns = (c.id, c.seq, c.submitted_at, c.ended_at, c.phase, c.open_bills, c.record)
        some = select(*columns).where(c.submitted_at < before, later).order_by(c.submitted_at, c.seq)
        with store.write() as conn:
            rows = conn.execute(some.limit(JOBS)).all()
            over = [row for row in rows if row.phase in ENDED_JOBS and not row.open_bills]
            old = [row for row in over if _ended_at(conn, row) < before]
            _replace_by_history(conn, old)
        if not rows:
            return
        after = rows[-1].submitted_at, rows[-1].seq
        yield len(old)


def _ended_at(conn: Connection, row: Any) -> float:
    """When a job ended; one that never ran says so in the log only."""
    if row.ended_at is not None:
        return float(row.ended_at)
    last = select(func.max(t.decisions.c.at)).where(t.decisions.c.subject == row.id)
    return float(conn.scalar(last) or row.submitted_at)


def _replace_by_history(conn: Connection, old: Sequence[Any]) -> None:
    ids = [row.id for row in old]
    if not ids:
        return
    conn.execute(delete(t.history).where(t.history.c.id.in_(ids)))
    conn.execute(insert(t.history), [_past(codec.decode(JobRecord, row.record)) for row in old])
    conn.execute(delete(t.decisions).where(t.decisions.c.subject.in_(ids)))
    conn.execute(delete(t.jobs).where(t.jobs.c.id.in_(ids)))


def _past(record: JobRecord) -> dict[str, Any]:
    needs = total(record.job.tasks)
    return {
        "id": record.id,
        "seq": record.seq,
        "user": record.job.user,
        "queue": record.job.queue,
        "phase": record.phase.value,
        "site": record.site.value if record.site else None,
        "submitted_at": record.submitted_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "gpus": needs.gpus,
        "cpus": needs.cpus,
        "memory_gib": needs.memory_gib,
        "cloud_micro_usd": record.cloud_micro_usd,
    }


def _instances(store: Store, before: float) -> Iterator[int]:
    c = t.instances.c
    columns = (c.id, c.offer_name, c.launched_at, c.ended_at, c.micro_usd)
    old = select(*columns).where(
        c.phase.not_in(LIVE_INSTANCES), func.coalesce(c.ended_at, c.requested_at) < before
    )
    while True:
        with store.write() as conn:
            rows = conn.execute(old.order_by(c.id).limit(JOBS)).all()
            ids = [row.id for row in rows]
            billed = [row._asdict() for row in rows if row.micro_usd]
            if billed:
                conn.execute(insert(t.past_instances), billed)
            if ids:
                conn.execute(delete(t.decisions).where(t.decisions.c.subject.in_(ids)))
                conn.execute(delete(t.instances).where(c.id.in_(ids)))
        if not rows:
            return
        yield len(rows)


def _decisions(store: Store, before: float) -> Iterator[int]:
    """Those about jobs and instances that are still in the store stay as long as these."""
    c = t.decisions.c
    while True:
        after = store.fact(PRUNED) or 0
        some = select(c.seq, c.at, c.subject).where(c.seq > after).order_by(c.seq).limit(ROWS)
        with store.write() as conn:
            rows = [row for row in conn.execute(some) if row.at < before]
            if not rows:
                return
            subjects = {row.subject for row in rows}
            kept = {
                *conn.scalars(select(t.jobs.c.id).where(t.jobs.c.id.in_(subjects))),
                *conn.scalars(select(t.instances.c.id).where(t.instances.c.id.in_(subjects))),
            }
            removed = [row.seq for row in rows if row.subject not in kept]
            conn.execute(delete(t.decisions).where(c.seq.in_(removed)))
        store.set_fact(PRUNED, rows[-1].seq)
        yield len(removed)


def _events(store: Store, before: float) -> Iterator[int]:
    c = t.events.c
    oldest = select(c.seq, c.at).order_by(c.seq).limit(ROWS)
    while True:
        with store.write() as conn:
            old = [row.seq for row in conn.execute(oldest) if row.at < before]
            if not old:
                return
            conn.execute(delete(t.events).where(c.seq.in_(old)))
        yield len(old)


def _actions(store: Store, before: float) -> Iterator[int]:
    c = t.actions.c
    some = select(c.seq).where(c.done_at < before).order_by(c.done_at).limit(ROWS)
    while True:
        with store.write() as conn:
            removed = conn.execute(delete(t.actions).where(c.seq.in_(some))).rowcount
        if not removed:
            return
        yield removed
