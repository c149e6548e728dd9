"""Requests of users in the store: what they submitted, read back, and edits of the same job, merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from sqlalchemy import Connection, bindparam, delete, insert, select

from starburst.core.model.jobs import JobRecord
from starburst.domain.array import is_whole
from starburst.domain.job import JobEdit, Submission, Workload
from starburst.store import arrays, codec, rows
from starburst.store.errors import DuplicateJobError, StoreError
from starburst.store.schema import requests
from starburst.store.statements import first, many, rows_with

_insert = insert(requests)
_CANCELLATIONS = ("cancel", "cancel-now")
_KEPT = "SELECT id, record, workload, notes FROM jobs"
_asked = select(requests.c.body).where(requests.c.kind == "submit", requests.c.job_id == bindparam("job"))


@dataclass(frozen=True, slots=True)
class UserRequest:
    """What a user asks of the scheduler about a job."""

    seq: int
    #: "submit", "cancel", "cancel-now", "hold", "release", "requeue", "edit" or "enter".
    kind: str
    job_id: str
    #: Of "submit".
    submission: Submission | None = None
    #: Of "edit".
    edit: JobEdit | None = None
    #: Who asks for any other; "" is the job's user.
    by: str = ""


def user_request(seq: int, kind: str, job_id: str, body: str) -> UserRequest:
    """A stored request."""
    submission = codec.decode(Submission, body) if kind == "submit" else None
    edit = codec.decode(JobEdit, body) if kind == "edit" else None
    return UserRequest(seq, kind, job_id, submission, edit, "" if submission or edit else body)


def cancellations(conn: Connection, job_ids: Sequence[str]) -> list[UserRequest]:
    """The requests to cancel one of these jobs that no step has taken up, the oldest first."""
    found: list[UserRequest] = []
    for some in rows.chunks(job_ids):
        those = requests.c.kind.in_(_CANCELLATIONS) & requests.c.job_id.in_(some)
        asked = select(requests.c.seq, requests.c.kind, requests.c.job_id, requests.c.body).where(those)
        found += [user_request(*row) for row in conn.execute(asked)]
    return sorted(found, key=lambda request: request.seq)


def put(conn: Connection, submissions: Sequence[Submission], now_wall: float) -> None:
    """Store submissions, in order: a row for each job, and one for an array.

    Raises:
        DuplicateJobError: an id is taken.
        IntegrityError: or is asked for.
    """
    for are_arrays, alike in groupby(submissions, lambda item: is_whole(item.job)):
        for some in rows.chunks(list(alike)):
            if are_arrays:
                for item in some:
                    arrays.put(conn, item, now_wall)
            else:
                _put_jobs(conn, some, now_wall)


def _put_jobs(conn: Connection, submissions: Sequence[Submission], now_wall: float) -> None:
    many(conn, _insert, [rows.submit_request(item, now_wall) for item in submissions])
    ids = [item.job.id for item in submissions]
    taken = first(conn, "jobs", "id", ids) or first(conn, "history", "id", ids) or arrays.holder(conn, ids)
    if taken is not None:
        raise DuplicateJobError(taken)


def id_twice(conn: Connection, submissions: Sequence[Submission]) -> str:
    """The first id that occurs twice in a submission or is stored already.

    Raises:
        StoreError: none does any more.
    """
    job_ids = [item.job.id for item in submissions]
    if repeated := [job_id for job_id, count in Counter(job_ids).items() if count > 1]:
        return repeated[0]
    for chunk in rows.chunks(job_ids):
        for table, column in (("requests", "job_id"), ("jobs", "id"), ("arrays", "id")):
            if (taken := first(conn, table, column, chunk)) is not None:
                return taken
    raise StoreError("the submission clashed with another one; submit it again")


def note_entry(conn: Connection, job_id: str, by: str, now_wall: float) -> None:
    """Store that `by` runs a command of their own beside a task of a job, with whoever else does so before
    the scheduler has taken that up.
    """
    noted = (requests.c.kind == "enter") & (requests.c.job_id == job_id)
    names = [name for body in conn.scalars(select(requests.c.body).where(noted)) for name in body.split(", ")]
    conn.execute(delete(requests).where(noted))  # a step that has read it takes up that row, not the next
    everybody = ", ".join(dict.fromkeys([*names, by]))
    many(conn, _insert, [rows.request("enter", job_id, now_wall, everybody)])


def ask_edits(conn: Connection, job_ids: Sequence[str], edit: JobEdit, now_wall: float) -> None:
    """Store an edit of each job; what an earlier request changes besides is kept."""
    for chunk in rows.chunks(job_ids):
        those = (requests.c.kind == "edit") & requests.c.job_id.in_(chunk)
        asked = {row.job_id: row.body for row in conn.execute(select(requests).where(those))}
        conn.execute(delete(requests).where(those))
        merged = {
            job_id: replace(codec.decode(JobEdit, asked[job_id]), **edit.changes) if job_id in asked else edit
            for job_id in chunk
        }
        wanted = [rows.request("edit", name, now_wall, codec.encode(each)) for name, each in merged.items()]
        conn.execute(insert(requests), wanted)


def taken_up(conn: Connection, job_ids: Sequence[str]) -> dict[str, Submission]:
    """The submissions of jobs that the scheduler has taken up, by id."""
    return {
        job_id: Submission(
            codec.decode(JobRecord, record).job,
            codec.decode(Workload, workload),
            codec.decode(tuple[str, ...], notes),
        )
        for job_id, record, workload, notes in rows_with(conn, _KEPT, "id", job_ids)
    }


def submission(conn: Connection, job_id: str) -> Submission | None:
    """The submission with this id, whether the scheduler has taken it up or not."""
    found = taken_up(conn, [job_id])
    if found:
        return found[job_id]
    body = conn.scalar(_asked, {"job": job_id})
    return arrays.submission(conn, job_id) if body is None else codec.decode(Submission, body)
