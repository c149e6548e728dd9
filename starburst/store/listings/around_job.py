"""What the explanation of one job needs of the store, whose other jobs may be a million."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, func, select, tuple_

from starburst.core.model.actions import places
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.views.snapshot import Facts, Snapshot
from starburst.domain.cloud import Offer
from starburst.domain.node import Node
from starburst.policy.estimate_accuracy import UserAccuracy
from starburst.store import codec
from starburst.store.rows import chunks
from starburst.store.schema import ACCURACY, facts, instances, jobs
from starburst.store.statements import documents_of
from starburst.store.store import Store


@dataclass(frozen=True, slots=True)
class AroundJob:
    """A job with the part of the scheduler's state that its explanation mentions."""

    record: JobRecord
    #: The job, its prerequisites and the machines of both, with all nodes and offers.
    snapshot: Snapshot
    #: Its place among the queued jobs of its shape, from 1; 0 if it is not in the cluster's queue.
    position: int


def around_job(store: Store, job_id: str) -> AroundJob | None:
    """A job and what is around it, from one state of the store; None if it has not been taken up."""
    with store.read() as conn:
        body = conn.scalar(select(jobs.c.record).where(jobs.c.id == job_id))
        if body is None:
            return None
        record = codec.decode(JobRecord, body)
        near = [record, *(codec.decode(JobRecord, text) for text in _bodies(conn, jobs, record.awaits))]
        documents = {row.key: row.body for row in conn.execute(select(facts).where(facts.c.key.in_(KEYS)))}
        names = [name for each in near for name in (*places(each.slots), *places(each.moving))]
        machines = _bodies(conn, instances, names)
        users = {each.job.user for each in near}
        accuracies = documents_of(conn, ACCURACY, UserAccuracy, users)
        position = _position(conn, job_id)
    return AroundJob(
        record,
        Snapshot(
            codec.decode(Facts, documents["facts"]) if "facts" in documents else Facts(),
            near,
            [codec.decode(InstanceRecord, text) for text in machines],
            _nodes(documents.get("nodes", "[]")),
            _offers(documents.get("offers", "[]")),
            codec.decode(dict[str, Any], documents["speeds"]) if "speeds" in documents else None,
            accuracies,
        ),
        position,
    )


KEYS = ("facts", "nodes", "offers", "speeds")


def _position(conn: Connection, job_id: str) -> int:
    c = jobs.c
    own = conn.execute(select(c.shape, c.order_key, c.seq).where(c.id == job_id)).one()
    if own.shape is None:
        return 0
    before = tuple_(c.order_key, c.seq) < tuple_(own.order_key, own.seq)
    return 1 + (conn.scalar(select(func.count()).where(c.shape == own.shape, before)) or 0)


def _bodies(conn: Connection, table: Any, ids: Any) -> list[str]:
    """The records of these jobs or instances."""
    return [
        body
        for some in chunks(list(dict.fromkeys(ids)))
        for body in conn.scalars(select(table.c.record).where(table.c.id.in_(some)))
    ]


@lru_cache(maxsize=2)
def _nodes(text: str) -> tuple[Node, ...]:
    """The nodes in a document, which rarely changes."""
    return codec.decode(tuple[Node, ...], text)


@lru_cache(maxsize=2)
def _offers(text: str) -> tuple[Offer, ...]:
    return codec.decode(tuple[Offer, ...], text)
