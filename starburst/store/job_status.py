"""How one job stands, asked often: no joins, no bills."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, select

from starburst.domain.job import Phase
from starburst.store.schema import jobs
from starburst.store.store import Store


@dataclass(frozen=True, slots=True)
class Standing:
    """Of a job that the scheduler has taken up."""

    id: str
    name: str
    user: str
    queue: str
    phase: Phase
    attempt: int

    @property
    def alive(self) -> bool:
        """Whether a run of it may exist somewhere."""
        return self.phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)


def standing(store: Store, job_id: str) -> Standing | None:
    """The job of this id; None if there is none, or the scheduler has not taken it up yet."""
    return next(iter(_where(store, jobs.c.id == job_id)), None)


def called(store: Store, name: str) -> list[Standing]:
    """All jobs of this name."""
    return _where(store, jobs.c.name == name)


def _where(store: Store, condition: ColumnElement[bool]) -> list[Standing]:
    j = jobs.c
    with store.read() as conn:
        rows = conn.execute(select(j.id, j.name, j.user, j.queue, j.phase, j.attempt).where(condition))
        return [Standing(*row[:4], Phase(row.phase), row.attempt) for row in rows]
