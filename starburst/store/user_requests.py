"""Requests of users in the store, and the merging of those that edit the same job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, insert, select

from starburst.domain.job import JobEdit, Submission
from starburst.store import codec, rows
from starburst.store.schema import requests


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


def note_entry(conn: Connection, job_id: str, by: str, now_wall: float) -> None:
    """Store that `by` runs a command of their own beside a task of a job."""
    conn.execute(insert(requests), [rows.request("enter", job_id, now_wall, by)])


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
