"""Bounds the size of the database: what ended long ago becomes a short row of history.

A pass is a series of small transactions, between which steps of the scheduler commit. It may be cut off
anywhere: the next one goes on. Counters of `/metrics` do not change (store/counters.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Double, bindparam, delete, func, insert, select

from starburst.core.model.jobs import JobRecord
from starburst.domain.resources import total
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.statements import many
from starburst.store.store import ENDED_JOBS, LIVE_INSTANCES, Store
from starburst.store.transactions import ask_within

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


class _OldJob(NamedTuple):
    id: str
    seq: int
    submitted_at: float
    ended_at: float | None
    phase: str
    open_bills: int
    record: str


class _OldInstance(NamedTuple):
    id: str
    offer_name: str
    launched_at: float | None
    ended_at: float | None
    micro_usd: int


# Plain SQL, or built once: a pass mostly finds nothing, and would take most of its time to build them.
_SOME_JOBS = f"""
SELECT {", ".join(_OldJob._fields)} FROM jobs
WHERE submitted_at < :before AND (submitted_at > :at OR (submitted_at = :at AND seq > :seq))
ORDER BY submitted_at, seq LIMIT :most
"""
_SOME_INSTANCES = f"""
SELECT {", ".join(_OldInstance._fields)} FROM instances
WHERE phase NOT IN ({", ".join(f"'{phase}'" for phase in LIVE_INSTANCES)})
AND COALESCE(ended_at, requested_at) < :before
ORDER BY id LIMIT :most
"""
_SOME_ENDED = """
SELECT id, ended_at FROM instances
WHERE ended_at < :before AND (ended_at > :at OR (ended_at = :at AND id > :id))
ORDER BY ended_at, id LIMIT :most
"""
_SOME_DECISIONS = "SELECT seq, at, subject FROM decisions WHERE seq > :seq ORDER BY seq LIMIT :most"
_SOME_EVENTS = "SELECT seq, at FROM events ORDER BY seq LIMIT :most"
_i, _d, _e, _a = t.instances.c, t.decisions.c, t.events.c, t.actions.c
_before, _most = bindparam("before", type_=Double), bindparam("most", type_=BigInteger)
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
        removed = many(conn, _drop_writers, [{"before": now_wall - WRITER_S}])
    yield removed or 0


def _jobs(store: Store, before: float) -> Iterator[int]:
    """In order of arrival, since no job ends before it was submitted; each job is looked at once a pass."""
    after = {"at": float("-inf"), "seq": -1}
    while True:
        with store.write() as conn:
            found = ask_within(conn, _SOME_JOBS, {"before": before, "most": JOBS, **after})
            rows = list(starmap(_OldJob, found))
            over = [row for row in rows if row.phase in ENDED_JOBS and not row.open_bills]
            old = [row for row in over if _ended_at(conn, row) < before]
            _replace_by_history(conn, old)
        if not rows:
            return
        after = {"at": rows[-1].submitted_at, "seq": rows[-1].seq}
        yield len(old)


def _ended_at(conn: Connection, row: _OldJob) -> float:
    """When a job ended; one that never ran says so in the log only."""
    if row.ended_at is not None:
        return float(row.ended_at)
    last = select(func.max(t.decisions.c.at)).where(t.decisions.c.subject == row.id)
    return float(conn.scalar(last) or row.submitted_at)


def _replace_by_history(conn: Connection, old: Sequence[_OldJob]) -> None:
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
        "estimate_s": record.job.runtime_estimate_s,
    }


def _stories(store: Store, before: float) -> Iterator[int]:
    """The decisions about instances, in the order in which these ended; each is looked at once."""
    while True:
        after = store.fact(TOLD) or {"at": float("-inf"), "id": ""}
        with store.write() as conn:
            rows = ask_within(conn, _SOME_ENDED, {"before": before, "most": JOBS, **after})
            if not rows:
                return
            stories = delete(t.decisions).where(_d.subject.in_([id_ for id_, _ in rows]))
            removed = conn.execute(stories).rowcount
        store.set_fact(TOLD, {"at": rows[-1][1], "id": rows[-1][0]})
        yield removed


def _instances(store: Store, before: float) -> Iterator[int]:
    while True:
        with store.write() as conn:
            found = ask_within(conn, _SOME_INSTANCES, {"before": before, "most": JOBS})
            rows = list(starmap(_OldInstance, found))
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
            rows = [row for row in ask_within(conn, _SOME_DECISIONS, after) if row[1] < before]
            if not rows:
                return
            subjects = {subject for _, _, subject in rows}
            kept = {
                *conn.scalars(select(t.jobs.c.id).where(t.jobs.c.id.in_(subjects))),
                *conn.scalars(select(t.instances.c.id).where(t.instances.c.id.in_(subjects))),
            }
            removed = [seq for seq, _, subject in rows if subject not in kept]
            conn.execute(delete(t.decisions).where(_d.seq.in_(removed)))
        store.set_fact(PRUNED, rows[-1][0])
        yield len(removed)


def _events(store: Store, before: float) -> Iterator[int]:
    while True:
        with store.write() as conn:
            old = [seq for seq, at in ask_within(conn, _SOME_EVENTS, {"most": ROWS}) if at < before]
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
