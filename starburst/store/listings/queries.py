"""Listings: frozen rows. They read columns, not whole records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf, isinf
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Subquery,
    Table,
    and_,
    func,
    or_,
    select,
    union_all,
)

from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.array import member_id
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.domain.job import Adopted, Job, Phase, Site, Submission, Workload, is_over
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.errors import AmbiguousJobError, JobNotFoundError, RolledUpError
from starburst.store.listings import array_rows, job_rows, plain_sql
from starburst.store.listings.plain_sql import at_most
from starburst.store.listings.row_types import SUBMITTED, DecisionRow, JobRow
from starburst.store.rows import chunks
from starburst.store.statements import asker
from starburst.store.store import ALIVE_JOBS, LIVE_INSTANCES, LIVE_JOBS, Store

#: Newest jobs that a misspelt name is compared with.
GUESS_AMONG = 2000


@dataclass(frozen=True, slots=True)
class EventRow:
    """A line of the input log."""

    seq: int
    at: float
    kind: str
    subject: str
    body: dict[str, Any]


class PastJob(NamedTuple):
    """A job whose command has ended, as the simulator takes it; resources are sums over its tasks."""

    id: str
    submitted_at: float
    #: Duration of its last run, seconds.
    runtime_s: float
    gpus: int
    cpus: float
    memory_gib: float
    queue: str
    user: str
    #: Its user's estimate of the run time, seconds; None if there was none.
    estimate_s: float | None


@dataclass(frozen=True, slots=True)
class PhaseCounts:
    """Numbers of jobs and instances by phase."""

    jobs: dict[str, int]
    instances: dict[str, int]


_DECISIONS = "SELECT seq, at, subject, event, kind, reason, numbers FROM decisions WHERE seq > :after"
_REQUESTED = t.requests.c.kind == "submit"
_RECORD = "SELECT record FROM jobs WHERE id = :job"


def jobs(
    store: Store,
    *,
    phases: Collection[str] | None = None,
    user: str | None = None,
    ids: Collection[str] | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """Jobs in order of arrival, those not yet taken up last; `limit` keeps the newest."""
    with store.read() as conn:
        return job_rows.jobs(asker(conn), phases=phases, user=user, ids=ids, limit=limit)


def job(store: Store, text: str) -> JobRow:
    """The job with this id or name, or with this unique prefix.

    Raises:
        JobNotFoundError: no job matches.
        AmbiguousJobError: several jobs match.
    """
    known = union_all(
        select(t.jobs.c.id, t.jobs.c.name),
        select(t.requests.c.job_id, t.requests.c.name).where(_REQUESTED),
    ).subquery()
    with store.read() as conn:
        found = one_of(conn, text, known)
        if found is not None:
            return job_rows.jobs(asker(conn), ids=[found])[0]
        past = rolled_up(conn, text)
        if past is not None:
            raise past
        newest = job_rows.jobs(asker(conn), limit=GUESS_AMONG)[::-1]
    words = dict.fromkeys(word for row in newest for word in (row.id, row.name))
    raise JobNotFoundError(text, get_close_matches(text, words))


def rolled_up(conn: Connection, text: str, queues: Collection[str] | None = None) -> RolledUpError | None:
    """The error for the id of a job, in `queues`, of which only the history is left."""
    h = t.history.c
    here = h.id == text if queues is None else and_(h.id == text, h.queue.in_(queues))
    phase = conn.scalar(select(h.phase).where(here))
    return None if phase is None else RolledUpError(text, phase)


def one_of(conn: Connection, text: str, known: Subquery, queues: Collection[str] | None = None) -> str | None:
    """The id of the job that a text means: with this id, else of this name, else beginning with it.

    An empty text, as a script without its variable has it, means none, though each id begins with it.
    `known` has the columns `id` and `name`; jobs of arrays that are not taken up, in `queues`, come to them.

    Raises:
        AmbiguousJobError: it means several.
    """
    if not text:
        return None
    begins = [column.startswith(text, autoescape=True) for column in (known.c.id, known.c.name)]
    ask = asker(conn)
    arrays = array_rows.rows(ask, queues=queues)
    conditions: dict[array_rows.Match, ColumnElement[bool]] = {
        "id": known.c.id == text,
        "name": known.c.name == text,
        "beginning": begins[0] | begins[1],
    }
    for match, condition in conditions.items():
        ids = set[str](conn.scalars(select(known.c.id).where(condition)))
        for row in arrays:
            ids.update(member_id(row.id, index) for index in array_rows.matching(ask, row, text, match))
        if len(ids) > 1:
            raise AmbiguousJobError(text, sorted(ids), is_name=match == "name")
        if ids:
            return ids.pop()
    return None


def ended(store: Store, ids: Collection[str]) -> tuple[tuple[str, str], ...]:
    """The (id, phase) of those jobs that have ended."""
    if not ids:
        return ()
    known = [(row.id, row.phase) for row in jobs(store, ids=ids)]
    missing = sorted(set(ids).difference(id_ for id_, _ in known))
    with store.read() as conn:
        for some in chunks(missing):
            old = select(t.history.c.id, t.history.c.phase).where(t.history.c.id.in_(some))
            known += [(row.id, row.phase) for row in conn.execute(old)]
    return tuple((id_, phase) for id_, phase in known if is_over(phase))


def past_jobs(store: Store) -> list[PastJob]:
    """Jobs whose command has ended with any exit code, in order of arrival."""
    c, h = t.jobs.c, t.history.c

    def has_run(c: Any) -> ColumnElement[bool]:
        return and_(c.phase.in_(("succeeded", "failed")), c.started_at.is_not(None), c.ended_at.is_not(None))

    columns = (h.gpus, h.cpus, h.memory_gib, h.queue, h.user, h.estimate_s)
    old = select(h.id, h.submitted_at, h.ended_at - h.started_at, *columns).where(has_run(h)).order_by(h.seq)
    with store.read() as conn:
        past = [PastJob(*row) for row in conn.execute(old)]
        ended = select(c.record).where(has_run(c)).order_by(c.seq)
        past += [_past(codec.decode(JobRecord, body)) for body in conn.scalars(ended)]
    return sorted(past, key=lambda job: job.submitted_at)


def record(store: Store, job_id: str) -> JobRecord | None:
    """The scheduler's record of a job; None if it has not taken the job up."""
    found = store.ask(_RECORD, {"job": job_id})
    return codec.decode(JobRecord, found[0][0]) if found else None


def past(store: Store, job_id: str) -> JobRecord | None:
    """What the history has of a job that was rolled up: when, where and how it ended; None of any other."""
    with store.read() as conn:
        row = conn.execute(select(t.history).where(t.history.c.id == job_id)).one_or_none()
    if row is None:
        return None
    sizes = (Resources.of(row.gpus, row.cpus, row.memory_gib),)
    return JobRecord(
        Job(row.id, row.id, sizes, user=row.user, queue=row.queue, runtime_estimate_s=row.estimate_s),
        row.seq,
        row.submitted_at,
        Phase(row.phase),
        None if row.site is None else Site(row.site),
        started_at=row.started_at,
        ended_at=row.ended_at,
        cloud_micro_usd=row.cloud_micro_usd,
        message=f"{row.phase}; its own words are kept no longer (home.keep)",
    )


def adopted(store: Store) -> dict[str, Adopted]:
    """Adopted jobs that have not ended, taken up or not, by id."""
    found = adopted_workloads(store)
    return {id_: workload.adopted for id_, workload in found.items() if workload.adopted is not None}


def adopted_workloads(store: Store) -> dict[str, Workload]:
    """The workloads of these jobs."""
    found, r = '%"adopted":{%', t.requests.c  # quotes inside manifests are escaped
    live = t.jobs.c.phase.in_(LIVE_JOBS) & t.jobs.c.workload.like(found)
    taken = select(t.jobs.c.id, t.jobs.c.workload).where(live)
    asked = select(r.job_id, r.body).where(_REQUESTED, r.body.like(found))
    with store.read() as conn:
        workloads = {id_: codec.decode(Workload, text) for id_, text in conn.execute(taken)}
        for id_, text in conn.execute(asked):
            workloads[id_] = codec.decode(Submission, text).workload
    return {id_: workload for id_, workload in workloads.items() if workload.adopted is not None}


def decisions(
    store: Store,
    subject: str | None = None,
    *,
    after_seq: int = 0,
    limit: int | None = None,
    last: int | None = None,
) -> list[DecisionRow]:
    """Decisions after `after_seq`, or those about one subject: all, the first or the last ones."""
    one = "" if subject is None else " AND subject = :subject"
    order = f"ORDER BY seq{'' if last is None else ' DESC'}{at_most(limit if last is None else last)}"
    values = {"after": after_seq} | ({} if subject is None else {"subject": subject})
    rows = [
        DecisionRow(seq, at, about, event, kind, reason, json.loads(numbers))
        for seq, at, about, event, kind, reason, numbers in store.ask(f"{_DECISIONS}{one} {order}", values)
    ]
    return rows if last is None else rows[::-1]


def events(store: Store, *, after_seq: int = 0, limit: int | None = None) -> list[EventRow]:
    """The input log after `after_seq`."""
    log = select(t.events).where(t.events.c.seq > after_seq).order_by(t.events.c.seq).limit(limit)
    with store.read() as conn:
        return [EventRow(**_parsed(row, "body")) for row in conn.execute(log).mappings()]


def instance_records(store: Store, *, include_ended: bool = False) -> list[InstanceRecord]:
    """The scheduler's records of instances, in order of request."""
    with store.read() as conn:
        return machines(conn, include_ended=include_ended)


def machines(
    conn: Connection, *, include_ended: bool = False, ended_after: float = inf
) -> list[InstanceRecord]:
    """`instance_records` within a transaction, with those that ended after a scheduler time."""
    c = t.instances.c
    chosen = select(c.record).order_by(c.requested_at, c.id)
    if not include_ended:
        live = c.phase.in_(LIVE_INSTANCES)
        chosen = chosen.where(live if isinf(ended_after) else or_(live, c.ended_at > ended_after))
    return codec.decode_all(InstanceRecord, conn.scalars(chosen))


def machine(conn: Connection, instance_id: str) -> InstanceRecord | None:
    """The scheduler's record of an instance, ended or not; None if the store has none."""
    text = conn.scalar(select(t.instances.c.record).where(t.instances.c.id == instance_id))
    return None if text is None else codec.decode(InstanceRecord, text)


def nodes(store: Store) -> tuple[Node, ...]:
    """The nodes of the cluster as last reported to the scheduler."""
    return _document(store, "nodes", tuple[Node, ...]) or ()


def offers(store: Store) -> tuple[Offer, ...]:
    """The offers of the cloud as last reported to the scheduler."""
    return _document(store, "offers", tuple[Offer, ...]) or ()


def pace(store: Store) -> Pace:
    """The scheduler's clock; the wall clock in a new store."""
    return plain_sql.pace(store.ask)


def summary(store: Store) -> PhaseCounts:
    """Numbers of jobs and instances by phase."""
    with store.read() as conn:
        counts = _phases(conn, t.jobs)
        for (_, phase), count in requested_counts(conn).items():
            counts[phase] = counts.get(phase, 0) + count
        return PhaseCounts(counts, _phases(conn, t.instances))


def requested_counts(conn: Connection, queues: Collection[str] | None = None) -> Counter[tuple[str, str]]:
    """Numbers of jobs that the scheduler has not taken up, by queue and phase."""
    r, found = t.requests.c, Counter[tuple[str, str]]()
    for queue, count in conn.execute(select(r.queue, func.count()).where(_REQUESTED).group_by(r.queue)):
        if queues is None or queue in queues:
            found[queue, SUBMITTED] += count
    for row in array_rows.rows(asker(conn), queues=queues):
        found[row.queue, row.phase] += row.jobs_left
    return found


def at_work(store: Store) -> bool:
    """Whether jobs run or instances are rented, as far as the store knows."""
    counts = summary(store)
    machines, jobs = counts.instances.keys(), counts.jobs.keys()
    return not (machines.isdisjoint(LIVE_INSTANCES) and jobs.isdisjoint(ALIVE_JOBS))


def _document(store: Store, key: str, kind: type[codec.T]) -> codec.T | None:
    body = store.fact_text(key)
    return None if body is None else codec.decode(kind, body)


def _past(record: JobRecord) -> PastJob:
    assert record.started_at is not None
    assert record.ended_at is not None
    tasks = record.job.tasks
    return PastJob(
        id=record.id,
        submitted_at=record.submitted_at,
        runtime_s=record.ended_at - record.started_at,
        gpus=sum(task.gpus for task in tasks),
        cpus=sum(task.cpus for task in tasks),
        memory_gib=sum(task.memory_gib for task in tasks),
        queue=record.job.queue,
        user=record.job.user,
        estimate_s=record.job.runtime_estimate_s,
    )


def _parsed(row: RowMapping, document: str) -> dict[str, Any]:
    return {**row, document: json.loads(row[document])}


def _phases(conn: Connection, table: Table) -> dict[str, int]:
    counts = select(table.c.phase, func.count()).group_by(table.c.phase).order_by(table.c.phase)
    return {row[0]: row[1] for row in conn.execute(counts)}
