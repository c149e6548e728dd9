"""Scoped listings: a page of jobs, jobs by name, jobs and decisions of some queues."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, func, literal, or_, select, union_all

from starburst.domain.array import arrays_of, member_id
from starburst.domain.job import Member, is_over
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.errors import AmbiguousJobError, JobNotFoundError
from starburst.store.listings import array_rows, queries
from starburst.store.listings.row_types import SUBMITTED, DecisionRow, JobRow
from starburst.store.rows import chunks
from starburst.store.statements import asker
from starburst.store.store import Store

#: Names of queues; None is all queues.
QueueScope = Sequence[str] | None
#: Order of arrival of an array, and an index in it.
ArrayPlace = tuple[int, int]
Choice = TypeVar("Choice", bound=Select[Any])
_REQUESTED = t.requests.c.kind == "submit"


@dataclass(frozen=True, slots=True)
class _Place:
    array: Member | None = None


@dataclass(frozen=True, slots=True)
class _Placed:
    """The part of a record or submission that holds the job's place in an array."""

    job: _Place


def page(
    store: Store,
    *,
    phases: Collection[str] = (),
    user: str | None = None,
    queues: QueueScope = None,
    after: JobRow | None = None,
    limit: int,
) -> list[JobRow]:
    """The first `limit` jobs in order of arrival, or after a job; jobs not yet taken up come last."""
    taken = _of(t.jobs, select(t.jobs.c.id).order_by(t.jobs.c.seq), user, queues)
    asked = _of(t.requests, select(t.requests.c.job_id).order_by(t.requests.c.seq), user, queues).where(
        _REQUESTED
    )
    if phases:
        taken = taken.where(t.jobs.c.phase.in_(phases))
    with store.read() as conn:
        array: ArrayPlace | None = None
        if after is not None:
            # Queried again: the scheduler may have taken the job up in the meantime.
            seq = conn.scalar(select(t.jobs.c.seq).where(t.jobs.c.id == after.id))
            request = conn.scalar(select(t.requests.c.seq).where(_REQUESTED, t.requests.c.job_id == after.id))
            array = _place(conn, after.id) if seq is None and request is None else None
            taken = taken.where(literal(False) if seq is None else t.jobs.c.seq > seq)
            asked = asked.where(literal(False) if array else t.requests.c.seq > (request or 0))
        ids = list(conn.scalars(taken.limit(limit)))
        if not phases or SUBMITTED in phases:
            ids += conn.scalars(asked.limit(limit - len(ids)))
        arrays = array_rows.rows(asker(conn), user=user, queues=queues, phases=phases)
        ids += islice(_array_jobs(conn, arrays, array), limit - len(ids))
    # The next page begins after the last row: it must be that of the last id.
    found = {row.id: row for row in queries.jobs(store, ids=ids)}
    return [found[job_id] for job_id in ids if job_id in found]


def _place(conn: Connection, job_id: str) -> ArrayPlace | None:
    """The array, by its order of arrival, and the index of a job that is not taken up."""
    of = arrays_of([job_id])
    return next(((row.seq, of[row.id][0]) for row in array_rows.rows(asker(conn), ids=of)), None)


def _array_jobs(
    conn: Connection, arrays: Iterable[array_rows.ArrayRow], after: ArrayPlace | None
) -> Iterator[str]:
    """The ids of jobs of arrays that are not taken up, those after a place."""
    ask, (seq, index) = asker(conn), after or (0, -1)
    for row in arrays:
        if row.seq >= seq:
            left = array_rows.indices(ask, row, after=index if row.seq == seq else -1)
            yield from (member_id(row.id, each) for each in left)


def find(store: Store, text: str, queues: QueueScope) -> JobRow:
    """As `queries.job`, restricted to these queues; other queues' jobs are not named in errors either.

    Raises:
        JobNotFoundError: no job matches.
        AmbiguousJobError: several jobs match.
    """
    if queues is None:
        return queries.job(store, text)
    known = union_all(
        _of(t.jobs, select(t.jobs.c.id, t.jobs.c.name), None, queues),
        _of(t.requests, select(t.requests.c.job_id, t.requests.c.name), None, queues).where(_REQUESTED),
    ).subquery()
    with store.read() as conn:
        found = queries.one_of(conn, text, known, queues)
        if found is None:
            raise queries.rolled_up(conn, text, queues) or JobNotFoundError(text, ())
    return queries.job(store, found)


def named(store: Store, names: Iterable[str], queues: QueueScope = None) -> list[JobRow]:
    """For each name the job that `find` finds, or all jobs of the array with this id or name, by index.

    Raises:
        JobNotFoundError: a name matches no job.
        AmbiguousJobError: a name matches several jobs or arrays.
    """
    return [row for name in names for row in _named(store, name, queues)]


def unfinished(store: Store, name: str, user: str, queues: QueueScope = None) -> list[str]:
    """Ids of a user's jobs that are not over and have this name, or are of an array of it."""
    with store.read() as conn:
        ids = [
            *conn.scalars(_of(t.jobs, select(t.jobs.c.id).where(t.jobs.c.name == name), user, queues)),
            *conn.scalars(
                _of(t.requests, select(t.requests.c.job_id).where(t.requests.c.name == name), user, queues)
            ),
        ]
    ids += [one for array in _arrays(store, name, queues).values() for one in array]
    return [row.id for row in queries.jobs(store, ids=ids) if row.user == user and not is_over(row.phase)]


def among(store: Store, job_ids: Collection[str], queues: QueueScope) -> set[str]:
    """The ids among `job_ids` whose jobs are in these queues."""
    if queues is None:
        return set(job_ids)
    found: set[str] = set()
    with store.read() as conn:
        for some in chunks(list(job_ids)):
            found |= set(
                conn.scalars(_of(t.jobs, select(t.jobs.c.id), None, queues).where(t.jobs.c.id.in_(some)))
            )
    return found


def owners(store: Store, job_ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """User and queue of each job that was taken up, also of those that are in the history only."""
    found: dict[str, tuple[str, str]] = {}
    with store.read() as conn:
        for some in chunks(list(job_ids)):
            for table in (t.history, t.jobs):
                chosen = select(table.c.id, table.c.user, table.c.queue).where(table.c.id.in_(some))
                found |= {row.id: (row.user, row.queue) for row in conn.execute(chosen)}
    return found


def elsewhere(store: Store, words: Collection[str], queues: Sequence[str]) -> set[str]:
    """The words that are ids of jobs outside these queues."""
    found: set[str] = set()
    with store.read() as conn:
        for some in chunks(list(words)):
            for table, id_ in (
                (t.jobs, t.jobs.c.id),
                (t.history, t.history.c.id),
                (t.requests, t.requests.c.job_id),
            ):
                others = table.c.queue.not_in([*queues, ""])  # requests about a job have no queue
                found |= set(conn.scalars(select(id_).where(id_.in_(some), others)))
            found |= {row.id for row in array_rows.jobs(asker(conn), ids=some) if row.queue not in queues}
    return found


def decisions(
    store: Store,
    queues: QueueScope,
    subject: str | None = None,
    *,
    after_seq: int = 0,
    limit: int,
    newest: bool = False,
) -> tuple[list[DecisionRow], int]:
    """Decisions after `after_seq` about jobs of these queues: the first `limit` rows, or the newest ones.

    The number is the position up to which the log was read: the last row, or the end of the log.
    """
    seq = t.decisions.c.seq
    with store.read() as conn:
        head = max(after_seq, conn.scalar(select(func.max(seq))) or 0)
        chosen = select(t.decisions).where(seq > after_seq, seq <= head).limit(limit)
        chosen = chosen.order_by(seq.desc() if newest else seq)
        if subject is not None:
            chosen = chosen.where(t.decisions.c.subject == subject)
        if queues is not None:
            chosen = chosen.where(t.decisions.c.subject.in_(_of(t.jobs, select(t.jobs.c.id), None, queues)))
        found = conn.execute(chosen).mappings().all()
    rows = [DecisionRow(**{**row, "numbers": json.loads(row["numbers"])}) for row in found]
    if newest:
        return rows[::-1], head
    return rows, rows[-1].seq if len(rows) == limit else head


def head(store: Store) -> int:
    """The sequence number of the newest decision; 0 if there is none."""
    with store.read() as conn:
        return conn.scalar(select(func.max(t.decisions.c.seq))) or 0


def counts(store: Store, queues: QueueScope) -> dict[str, int]:
    """Numbers of jobs by phase; phases without jobs are missing."""
    phase = t.jobs.c.phase
    by_phase = _of(t.jobs, select(phase, func.count()).group_by(phase).order_by(phase), None, queues)
    with store.read() as conn:
        found = {row[0]: row[1] for row in conn.execute(by_phase)}
        for (_, name), count in queries.requested_counts(conn, queues).items():
            found[name] = found.get(name, 0) + count
    return found


def counts_by_queue(store: Store, queues: QueueScope) -> dict[str, dict[str, int]]:
    """Numbers of jobs by queue and phase; phases without jobs are missing."""
    j = t.jobs.c
    taken = _of(t.jobs, select(j.queue, j.phase, func.count()).group_by(j.queue, j.phase), None, queues)
    found: dict[str, dict[str, int]] = {}
    with store.read() as conn:
        for queue, phase, count in conn.execute(taken):
            found.setdefault(queue, {})[phase] = count
        for (queue, phase), count in queries.requested_counts(conn, queues).items():
            numbers = found.setdefault(queue, {})
            numbers[phase] = numbers.get(phase, 0) + count
    return found


def _named(store: Store, text: str, queues: QueueScope) -> list[JobRow]:
    try:
        return [find(store, text, queues)]
    except AmbiguousJobError as several:
        arrays = {} if several.is_name else _arrays(store, text, queues)
        if not arrays:
            raise
        if len(arrays) > 1:
            raise AmbiguousJobError(text, sorted(arrays)) from None
        (found,) = arrays.values()
        index = {id_: place for place, id_ in enumerate(found)}
        return sorted(queries.jobs(store, ids=found), key=lambda row: index[row.id])


def _arrays(store: Store, text: str, queues: QueueScope) -> dict[str, list[str]]:
    """The jobs of arrays with this id or name, in order of their indices."""
    tables = (
        (t.jobs, t.jobs.c.id, t.jobs.c.record, t.jobs.c.phase.is_not(None)),
        (t.requests, t.requests.c.job_id, t.requests.c.body, _REQUESTED),
    )
    found: dict[str, dict[int, str]] = {}
    with store.read() as conn:
        ask = asker(conn)
        for row in array_rows.rows(ask, queues=queues):
            if text in (row.id, row.name):
                found[row.id] = {i: member_id(row.id, i) for i in array_rows.indices(ask, row)}
        for table, id_, body, which in tables:
            name = table.c.name
            begins = or_(*(column.startswith(f"{text}-", autoescape=True) for column in (id_, name)))
            chosen = select(id_, name, body).where(which, begins, body.like('%"array":{"array":%'))
            for job_id, job_name, record in conn.execute(_of(table, chosen, None, queues)):
                place = codec.decode(_Placed, record).job.array
                if place is not None and text in (place.array, job_name.removesuffix(f"-{place.index}")):
                    found.setdefault(place.array, {})[place.index] = job_id
    return {array: [ids[index] for index in sorted(ids)] for array, ids in found.items()}


def _of(table: Table, chosen: Choice, user: str | None, queues: QueueScope) -> Choice:
    """The query restricted to this user and these queues."""
    if user is not None:
        chosen = chosen.where(table.c.user == user)
    return chosen if queues is None else chosen.where(table.c.queue.in_(queues))
