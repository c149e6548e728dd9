"""Bounds the size of the database: what ended long ago becomes a short row of history.

A pass is a series of small transactions, between which steps of the scheduler commit. It may be cut off
anywhere: the next one goes on. Counters of `/metrics` do not change (store/counters.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Double, and_, bindparam, delete, func, insert, or_, select

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
#: Key of the fact that holds the last of the ended instances whose decisions are removed.
TOLD = "instances-pruned"

# Built once: a pass mostly finds nothing, and would take most of its time to build them.
_j, _i, _d, _e, _a = t.jobs.c, t.instances.c, t.decisions.c, t.events.c, t.actions.c
_before, _at = bindparam("before", type_=Double), bindparam("at", type_=Double)
_seq, _most = bindparam("seq", type_=BigInteger), bindparam("most", type_=BigInteger)
_some_jobs = (
    select(_j.id, _j.seq, _j.submitted_at, _j.ended_at, _j.phase, _j.open_bills, _j.record)
    .where(_j.submitted_at < _before, or_(_j.submitted_at > _at, and_(_j.submitted_at == _at, _j.seq > _seq)))
    .order_by(_j.submitted_at, _j.seq)
    .limit(_most)
)
_some_instances = (
    select(_i.id, _i.offer_name, _i.launched_at, _i.ended_at, _i.micro_usd)
    .where(_i.phase.not_in(LIVE_INSTANCES), func.coalesce(_i.ended_at, _i.requested_at) < _before)
    .order_by(_i.id)
    .limit(_most)
)
_some_ended = (
    select(_i.id, _i.ended_at)
    .where(_i.ended_at < _before, or_(_i.ended_at > _at, and_(_i.ended_at == _at, _i.id > bindparam("id"))))
    .order_by(_i.ended_at, _i.id)
    .limit(_most)
)
_some_decisions = select(_d.seq, _d.at, _d.subject).where(_d.seq > _seq).order_by(_d.seq).limit(_most)
_some_events = select(_e.seq, _e.at).order_by(_e.seq).limit(_most)
_done_actions = select(_a.seq).where(_a.done_at < _before).order_by(_a.done_at).limit(_most)
_drop_actions = delete(t.actions).where(_a.seq.in_(_done_actions))
_drop_writers = delete(t.writers).where(t.writers.c.at < _before)


def roll_up(store: Store, before: float, now_wall: float) -> Iterator[int]:
    """Roll up what ended before a scheduler time; each step is a transaction, and yields its removed rows.

    Jobs go with their decisions, and events, actions and other decisions by age, those about an instance once
    it ended before then.
    """
    yield from _jobs(store, before)
    yield from _stories(store, before)
    yield from _instances(store, before - INSTANCE_S)
    yield from _decisions(store, before)
    yield from _events(store, before)
    yield from _actions(store, before)
    with store.write() as conn:
        removed = conn.execute(_drop_writers, {"before": now_wall - WRITER_S}).rowcount
    yield removed


def _jobs(store: Store, before: float) -> Iterator[int]:
    """In order of arrival, since no job ends before it was submitted; each job is looked at once a pass."""
    after = {"at": float("-inf"), "seq": -1}
    while True:
        with store.write() as conn:
            rows = conn.execute(_some_jobs, {"before": before, "most": JOBS, **after}).all()
            over = [row for row in rows if row.phase in ENDED_JOBS and not row.open_bills]
            old = [row for row in over if _ended_at(conn, row) < before]
            _replace_by_history(conn, old)
        if not rows:
            return
        after = {"at": rows[-1].submitted_at, "seq": rows[-1].seq}
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


def _stories(store: Store, before: float) -> Iterator[int]:
    """The decisions about instances, in the order in which these ended; each is looked at once."""
    while True:
        after = store.fact(TOLD) or {"at": float("-inf"), "id": ""}
        with store.write() as conn:
            rows = conn.execute(_some_ended, {"before": before, "most": JOBS, **after}).all()
            if not rows:
                return
            stories = delete(t.decisions).where(_d.subject.in_([row.id for row in rows]))
            removed = conn.execute(stories).rowcount
        store.set_fact(TOLD, {"at": rows[-1].ended_at, "id": rows[-1].id})
        yield removed


def _instances(store: Store, before: float) -> Iterator[int]:
    while True:
        with store.write() as conn:
            rows = conn.execute(_some_instances, {"before": before, "most": JOBS}).all()
            ids = [row.id for row in rows]
            billed = [row._asdict() for row in rows if row.micro_usd]
            if billed:
                conn.execute(insert(t.past_instances), billed)
            if ids:
                conn.execute(delete(t.instances).where(_i.id.in_(ids)))
        if not rows:
            return
        yield len(rows)


def _decisions(store: Store, before: float) -> Iterator[int]:
    """Those about jobs and instances that are still in the store stay as long as these."""
    while True:
        after = {"seq": store.fact(PRUNED) or 0, "most": ROWS}
        with store.write() as conn:
            rows = [row for row in conn.execute(_some_decisions, after) if row.at < before]
            if not rows:
                return
            subjects = {row.subject for row in rows}
            kept = {
                *conn.scalars(select(t.jobs.c.id).where(t.jobs.c.id.in_(subjects))),
                *conn.scalars(select(t.instances.c.id).where(t.instances.c.id.in_(subjects))),
            }
            removed = [row.seq for row in rows if row.subject not in kept]
            conn.execute(delete(t.decisions).where(_d.seq.in_(removed)))
        store.set_fact(PRUNED, rows[-1].seq)
        yield len(removed)


def _events(store: Store, before: float) -> Iterator[int]:
    while True:
        with store.write() as conn:
            old = [row.seq for row in conn.execute(_some_events, {"most": ROWS}) if row.at < before]
            if not old:
                return
            conn.execute(delete(t.events).where(_e.seq.in_(old)))
        yield len(old)


def _actions(store: Store, before: float) -> Iterator[int]:
    while True:
        with store.write() as conn:
            removed = conn.execute(_drop_actions, {"before": before, "most": ROWS}).rowcount
        if not removed:
            return
        yield removed
