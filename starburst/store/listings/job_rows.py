"""The list of jobs and the clock in plain SQL: for connections of SQLAlchemy, and for SQLite's driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from starburst.domain.clock import Pace
from starburst.store.listings.row_types import SUBMITTED, JobRow

#: Runs a statement with named values (`:name`) in a transaction; its rows.
Ask = Callable[[str, Mapping[str, object]], Sequence[Sequence[Any]]]

#: Ids per statement: bounds the number of values.
CHUNK = 500

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
    where, values = _where(("phase", phases or None), ('"user"', user), ("id", ids))
    order = "ORDER BY submitted_at DESC, seq DESC"
    return [JobRow(*row) for row in ask(f"{_TAKEN}{where} {order}{_at_most(limit)}", values)]


def requested(
    ask: Ask, *, user: str | None = None, ids: Collection[str] | None = None, limit: int | None = None
) -> list[JobRow]:
    """Jobs not yet taken up, newest first."""
    where, values = _where(("kind", "submit"), ('"user"', user), ("job_id", ids))
    rows = ask(f"{_REQUESTED}{where} ORDER BY seq DESC{_at_most(limit)}", values)
    clock = pace(ask) if rows else Pace()
    return [
        JobRow(id_, name, owner, queue, need, SUBMITTED, clock.scheduler_time(created_at))
        for id_, name, owner, queue, need, created_at in rows
    ]


def pace(ask: Ask) -> Pace:
    """The scheduler's clock; the wall clock in a new store."""
    found = ask("SELECT body FROM facts WHERE key = 'clock'", {})
    return Pace(**json.loads(found[0][0])) if found else Pace()


def _where(*conditions: tuple[str, str | Collection[str] | None]) -> tuple[str, dict[str, object]]:
    """The conditions on columns that are not None, a value or several possible ones, and their values."""
    texts: list[str] = []
    values: dict[str, object] = {}
    for column, wanted in conditions:
        if wanted is None:
            continue
        names = [f"v{len(values) + k}" for k in range(1 if isinstance(wanted, str) else len(wanted))]
        values |= zip(names, [wanted] if isinstance(wanted, str) else wanted, strict=True)
        texts.append(f"{column} IN ({', '.join(f':{name}' for name in names)})")
    return (f" WHERE {' AND '.join(texts)}" if texts else ""), values


def _at_most(limit: int | None) -> str:
    return "" if limit is None else f" LIMIT {int(limit)}"
