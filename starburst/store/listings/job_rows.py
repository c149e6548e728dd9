"""The list of jobs in plain SQL: for connections of SQLAlchemy, and for SQLite's driver."""

from __future__ import annotations

from collections.abc import Collection

from starburst.domain.clock import Pace
from starburst.store.listings import array_rows
from starburst.store.listings.plain_sql import CHUNK, Ask, at_most, pace, where
from starburst.store.listings.row_types import SUBMITTED, JobRow

# No job leaves, and so none has a deadline, where the cloud has no offers.
_DEADLINE = "CASE WHEN (SELECT body = '[]' FROM facts WHERE key = 'offers') THEN NULL ELSE deadline END"
_COLUMNS = ", ".join(_DEADLINE if it == "deadline" else f'"{it}"' for it in JobRow.__dataclass_fields__)
_TAKEN = f"SELECT {_COLUMNS} FROM jobs"
_REQUESTED = 'SELECT job_id, name, "user", queue, need, created_at FROM requests'


def jobs(
    ask: Ask,
    *,
    phases: Collection[str] | None = None,
    user: str | None = None,
    ids: Collection[str] | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """Jobs in order of arrival, those not yet taken up last; `limit` keeps the newest."""
    found: list[JobRow] = []
    known = list(ids or ())
    parts = [None] if ids is None else [known[at : at + CHUNK] for at in range(0, len(known), CHUNK)]
    for part in parts:
        found += array_rows.jobs(ask, phases=phases or (), user=user, ids=part, limit=limit)
        if not phases or SUBMITTED in phases:
            found += requested(ask, user=user, ids=part, limit=limit)
        found += taken_up(ask, phases=phases, user=user, ids=part, limit=limit)
    found.reverse()
    found.sort(key=lambda row: (row.seq is None, row.submitted_at if row.seq is None else row.seq))
    return found if limit is None else found[max(0, len(found) - limit) :]


def taken_up(
    ask: Ask,
    *,
    phases: Collection[str] | None = None,
    user: str | None = None,
    ids: Collection[str] | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """Jobs that the scheduler has taken up, newest first."""
    chosen, values = where(("phase", phases or None), ('"user"', user), ("id", ids))
    order = "ORDER BY submitted_at DESC, seq DESC"
    return [JobRow(*row) for row in ask(f"{_TAKEN}{chosen} {order}{at_most(limit)}", values)]


def requested(
    ask: Ask, *, user: str | None = None, ids: Collection[str] | None = None, limit: int | None = None
) -> list[JobRow]:
    """Jobs not yet taken up, but for those of arrays, newest first."""
    chosen, values = where(("kind", "submit"), ('"user"', user), ("job_id", ids))
    rows = ask(f"{_REQUESTED}{chosen} ORDER BY seq DESC{at_most(limit)}", values)
    clock = pace(ask) if rows else Pace()
    return [
        JobRow(id_, name, owner, queue, need, SUBMITTED, clock.scheduler_time(created_at))
        for id_, name, owner, queue, need, created_at in rows
    ]
