"""Core types as rows of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from math import isinf
from typing import Any

from starburst.core.model.actions import Action
from starburst.core.model.decisions import Decision, where
from starburst.core.model.events import Event
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.job import CloudChoice, Phase, Shape, Submission
from starburst.store import codec

TableRow = Mapping[str, Any]

#: Rows or ids per statement: bounds memory and the number of bound values.
CHUNK = 500


def chunks(items: Sequence[codec.T]) -> Iterator[list[codec.T]]:
    """The items in lists of at most `CHUNK`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def job_progress(record: JobRecord) -> dict[str, Any]:
    """The columns of a job that change."""
    return {
        "phase": record.phase.value,
        "site": record.site.value if record.site else None,
        "runs_on": where(record.slots),
        "need": record.attempt_need,
        "attempt": record.attempt,
        "deadline": None if isinf(record.deadline) else record.deadline,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "exit_code": record.exit_code,
        "message": record.stall or record.message,
        "cloud_micro_usd": record.cloud_micro_usd,
        "open_bills": record.open_bills,
        "record": codec.encode_brief(record),
        "obstructed": _is_obstructed(record) or None,
        **place_in_line(record),
    }


def place_in_line(record: JobRecord) -> dict[str, Any]:
    """The columns by which a job's place among the queued jobs of its shape is counted; null out of line."""
    if record.phase is not Phase.QUEUED or record.job.cloud is CloudChoice.ONLY:
        return {"shape": None, "order_key": None}
    return {"shape": _hash_of(record.job.shape), "order_key": record.order_key}


def _is_obstructed(record: JobRecord) -> bool:
    """Whether a job should have left for the cloud and cannot; not if its cluster does not let it leave."""
    return record.phase is Phase.QUEUED and record.obstacle is not None and not record.confined


@lru_cache(maxsize=10_000)
def _hash_of(shape: Shape) -> str:
    return blake2b(shape.encode(), digest_size=8).hexdigest()


def new_job(record: JobRecord, submission: Submission) -> TableRow:
    """The complete row of a new job."""
    job = record.job
    return {
        "id": job.id,
        "seq": record.seq,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "submitted_at": record.submitted_at,
        "workload": codec.encode_brief(submission.workload),
        "notes": codec.encode(submission.notes),
        **job_progress(record),
    }


def instance(record: InstanceRecord) -> TableRow:
    """A rented instance."""
    return {
        "id": record.id,
        "offer_name": record.offer.name,
        "phase": record.phase.value,
        "requested_at": record.requested_at,
        "launched_at": record.launched_at,
        "ended_at": record.ended_at,
        "micro_usd": record.micro_usd,
        "record": codec.encode_brief(record),
    }


def submit_request(submission: Submission, now_wall: float) -> TableRow:
    """A submission that waits for the scheduler."""
    job = submission.job
    return {
        "kind": "submit",
        "job_id": job.id,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "need": str(job.resources),
        "body": codec.encode_brief(submission),
        "created_at": now_wall,
    }


def request(kind: str, job_id: str, now_wall: float, body: str = "") -> TableRow:
    """A request about a job, other than to submit it; `body`: who asks, or the edit."""
    nothing = dict.fromkeys(("name", "user", "queue", "need"), "")
    return {"kind": kind, "job_id": job_id, "created_at": now_wall, "body": body, **nothing}


def event(item: Event, now: float) -> TableRow:
    """A row of the input log."""
    kind = type(item).__name__
    return {"at": now, "kind": kind, "subject": codec.subject(item), "body": codec.encode(item)}


def decision(item: Decision) -> TableRow:
    """A row of the decision log."""
    return {
        "seq": item.seq,
        "at": item.at,
        "subject": item.subject,
        "event": item.event,
        "kind": item.kind,
        "reason": item.reason,
        "numbers": codec.encode(item.numbers),
    }


def action(item: Action) -> TableRow:
    """A pending action."""
    kind = type(item).__name__
    return {"key": item.key, "kind": kind, "subject": codec.subject(item), "body": codec.encode(item)}
