"""Statements that are executed at every step or look.

Each is built once: SQLAlchemy takes longer to build a statement, and to find what it compiled it to, than
SQLite takes to execute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sqlalchemy import Column, Connection, Executable, Select, Table, bindparam, delete, insert, select

from starburst.store import rows
from starburst.store.listings.plain_sql import Ask
from starburst.store.transactions import ask_within

#: The text of a small document, in plain SQL.
FACT_BODY = "SELECT body FROM facts WHERE key = :key"


def fact_body(conn: Connection, key: str) -> str | None:
    """The text of a small document; None if it was never stored."""
    found = ask_within(conn, FACT_BODY, {"key": key})
    return str(found[0][0]) if found else None


def many(conn: Connection, statement: Executable, rows_: Sequence[rows.TableRow]) -> None:
    """Execute a statement once per row."""
    if rows_:
        conn.execute(statement, rows_)


def replace(conn: Connection, table: Table, key: Column[str], rows_: Sequence[rows.TableRow]) -> None:
    """Insert rows, replacing rows of the same keys; portable across databases."""
    if rows_:
        old, new = _replacement(table, key)
        conn.execute(old, [{"replaced": row[key.name]} for row in rows_])
        conn.execute(new, rows_)


def first(conn: Connection, column: Column[str], values: Sequence[str]) -> str | None:
    """One of these values that a column has; None if it has none."""
    return conn.scalar(_any_of(column), {"values": values})


def asker(conn: Connection) -> Ask:
    """Runs statements in plain SQL within a transaction."""
    return lambda statement, values: ask_within(conn, statement, values)


@cache
def _replacement(table: Table, key: Column[str]) -> tuple[Executable, Executable]:
    return delete(table).where(key == bindparam("replaced")), insert(table)


@cache
def _any_of(column: Column[str]) -> Select[str]:
    return select(column).where(column.in_(bindparam("values", expanding=True))).limit(1)
