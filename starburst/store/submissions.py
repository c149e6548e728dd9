"""What was handed in, read back: of jobs that the scheduler has taken up, and of those that it has not."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, select

from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Submission, Workload
from starburst.store import codec, rows
from starburst.store.schema import jobs, requests

_kept = select(jobs.c.id, jobs.c.record, jobs.c.workload, jobs.c.notes).where(
    jobs.c.id.in_(bindparam("ids", expanding=True))
)
_asked = select(requests.c.body).where(requests.c.kind == "submit", requests.c.job_id == bindparam("job"))


def taken_up(conn: Connection, job_ids: Sequence[str]) -> dict[str, Submission]:
    """The submissions of jobs that the scheduler has taken up, by id."""
    return {
        row.id: Submission(
            codec.decode(JobRecord, row.record).job,
            codec.decode(Workload, row.workload),
            codec.decode(tuple[str, ...], row.notes),
        )
        for chunk in rows.chunks(job_ids)
        for row in conn.execute(_kept, {"ids": chunk})
    }


def submission(conn: Connection, job_id: str) -> Submission | None:
    """The submission with this id, whether the scheduler has taken it up or not."""
    found = taken_up(conn, [job_id])
    if found:
        return found[job_id]
    body = conn.scalar(_asked, {"job": job_id})
    return None if body is None else codec.decode(Submission, body)
