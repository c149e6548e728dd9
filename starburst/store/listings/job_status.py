"""The status of one job by a cheap query, for frequent progress reports."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, select

from starburst.domain.job import Phase
from starburst.store.schema import jobs
from starburst.store.store import Store


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job that the scheduler has taken up."""

    id: str
    name: str
    user: str
    queue: str
    phase: Phase
    attempt: int

    @property
    def alive(self) -> bool:
        """Whether a run of the job may exist."""
        return self.phase.is_alive


def job_status(store: Store, job_id: str) -> JobStatus | None:
    """The status of a job by id; None if the job is unknown or not yet taken up."""
    return next(iter(_where(store, jobs.c.id == job_id)), None)


def jobs_named(store: Store, name: str) -> list[JobStatus]:
    """The jobs with this name."""
    return _where(store, jobs.c.name == name)


def _where(store: Store, condition: ColumnElement[bool]) -> list[JobStatus]:
    j = jobs.c
    with store.read() as conn:
        rows = conn.execute(select(j.id, j.name, j.user, j.queue, j.phase, j.attempt).where(condition))
        return [JobStatus(*row[:4], Phase(row.phase), row.attempt) for row in rows]
