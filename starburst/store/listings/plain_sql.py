"""Parts of statements in plain SQL, for connections of SQLAlchemy and for SQLite's driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from starburst.domain.clock import Pace

#: Runs a statement with named values (`:name`) in a transaction; its rows.
Ask = Callable[[str, Mapping[str, object]], Sequence[Sequence[Any]]]

#: Ids per statement: bounds the number of values.
CHUNK = 500


def pace(ask: Ask) -> Pace:
    """The scheduler's clock; the wall clock in a new store."""
    found = ask("SELECT body FROM facts WHERE key = 'clock'", {})
    return Pace(**json.loads(found[0][0])) if found else Pace()


def where(*conditions: tuple[str, str | Collection[str] | None]) -> tuple[str, dict[str, object]]:
    """The conditions on columns that are not None, a value or several possible ones, and their values."""
    texts: list[str] = []
    values: dict[str, object] = {}
    for column, wanted in conditions:
        if wanted is None:
            continue
        if not isinstance(wanted, str) and not wanted:
            texts.append("1 = 0")
            continue
        names = [f"v{len(values) + k}" for k in range(1 if isinstance(wanted, str) else len(wanted))]
        values |= zip(names, [wanted] if isinstance(wanted, str) else wanted, strict=True)
        texts.append(f"{column} IN ({', '.join(f':{name}' for name in names)})")
    return (f" WHERE {' AND '.join(texts)}" if texts else ""), values


def at_most(limit: int | None) -> str:
    return "" if limit is None else f" LIMIT {int(limit)}"
