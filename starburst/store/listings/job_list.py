"""One page of a sorted list of jobs, chosen by words, phase, user, queue, array and place."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, literal, select

from starburst.store import schema as t
from starburst.store.listings.dashboard_queries import MOST_HITS, words_in
from starburst.store.listings.row_types import JobRow

#: Columns that a list can be sorted by; those of times and bills begin with the largest.
SORTS = {
    "submitted": t.jobs.c.submitted_at.desc(),
    "id": t.jobs.c.id,
    "phase": t.jobs.c.phase,
    "user": t.jobs.c.user,
    "queue": t.jobs.c.queue,
    "started": t.jobs.c.started_at.desc().nulls_last(),
    "ended": t.jobs.c.ended_at.desc().nulls_last(),
    "bill": t.jobs.c.cloud_micro_usd.desc(),
}


@dataclass(frozen=True, slots=True)
class JobChoice:
    """Which jobs, in which order; "" is no condition. `on`: a node or machine of the present or last run."""

    q: str = ""
    phase: str = ""
    user: str = ""
    queue: str = ""
    array: str = ""
    on: str = ""
    sort: str = "submitted"

    def conditions(self) -> list[ColumnElement[bool]]:
        """The conditions on the table of jobs."""
        c = t.jobs.c
        pairs = ((c.phase, self.phase), (c.user, self.user), (c.queue, self.queue))
        chosen = [column == value for column, value in pairs if value]
        if self.array:
            chosen.append(c.id.startswith(f"{self.array}-", autoescape=True))
        if self.on:
            places = literal(", ").concat(c.runs_on).concat(",")
            chosen.append(places.contains(f", {self.on},", autoescape=True))
        return [*chosen, *words_in(self.q)]


def listed(conn: Connection, choice: JobChoice, limit: int, offset: int = 0) -> tuple[list[JobRow], int]:
    """Jobs that the scheduler has taken up, and how many there are in all, counted up to MOST_HITS."""
    chosen = choice.conditions()
    columns = [t.jobs.c[name] for name in JobRow.__dataclass_fields__]
    order = SORTS.get(choice.sort, SORTS["submitted"])
    rows = select(*columns).where(*chosen).order_by(order, t.jobs.c.seq.desc()).limit(limit).offset(offset)
    some = select(t.jobs.c.seq).where(*chosen).limit(MOST_HITS).subquery()
    count = conn.scalar(select(func.count()).select_from(some)) or 0
    return [JobRow(*row) for row in conn.execute(rows)], count
