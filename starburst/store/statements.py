"""Statements that are executed at every step or look.

Each is built once: SQLAlchemy takes longer to build a statement, and to find what it compiled it to, than
SQLite takes to execute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Column, Connection, Table, bindparam, delete, insert, select
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql.dml import UpdateBase

from starburst.store import codec, rows
from starburst.store.databases import sqlite
from starburst.store.listings.plain_sql import Ask, where
from starburst.store.schema import facts
from starburst.store.transactions import ask_within

#: Writes statements as SQLite takes them, with values by name.
_SQLITE = SQLiteDialect_pysqlite(paramstyle="named")

#: The text of a small document, in plain SQL.
FACT_BODY = "SELECT body FROM facts WHERE key = :key"


def fact_body(conn: Connection, key: str) -> str | None:
    """The text of a small document; None if it was never stored."""
    found = ask_within(conn, FACT_BODY, {"key": key})
    return str(found[0][0]) if found else None


def document(conn: Connection, key: str, kind: type[codec.T]) -> codec.T | None:
    """A small document; None if it was never stored."""
    body = fact_body(conn, key)
    return None if body is None else codec.decode(kind, body)


def documents_of(
    conn: Connection, prefix: str, kind: type[codec.T], names: Iterable[str] | None = None
) -> dict[str, codec.T]:
    """The small documents under `prefix` of these names, or of all; names without one are missing."""
    if names is None:
        every = select(facts.c.key, facts.c.body).where(facts.c.key.startswith(prefix, autoescape=True))
        found: Iterable[Sequence[Any]] = conn.execute(every)
    else:
        keys = [prefix + name for name in sorted(names)]
        found = rows_with(conn, "SELECT key, body FROM facts", "key", keys)
    return {name.removeprefix(prefix): codec.decode(kind, body) for name, body in found}


def put_documents(conn: Connection, documents: Mapping[str, object]) -> None:
    """Store small documents, by key."""
    rows_ = [{"key": key, "body": codec.encode(value)} for key, value in documents.items()]
    replace(conn, facts, facts.c.key, rows_)


def many(conn: Connection, statement: UpdateBase, rows_: Sequence[rows.TableRow]) -> int | None:
    """Execute a statement, of a constant of a module, once per row; all rows have the same columns.

    Returned is how many rows of the table it changed, None if the database does not say.
    """
    if not rows_:
        return 0
    if conn.dialect.name == "sqlite":
        return sqlite.write_on(conn.connection, conn.engine, _text(statement, tuple(rows_[0])), rows_)
    done = conn.execute(statement, rows_)
    says = len(rows_) == 1 or conn.dialect.supports_sane_multi_rowcount
    return done.rowcount if says else None


def replace(conn: Connection, table: Table, key: Column[str], rows_: Sequence[rows.TableRow]) -> None:
    """Insert rows, replacing rows of the same keys; portable across databases."""
    if rows_:
        old, new = _replacement(table, key)
        many(conn, old, [{"replaced": row[key.name]} for row in rows_])
        many(conn, new, rows_)


def first(conn: Connection, table: str, column: str, values: Sequence[str]) -> str | None:
    """One of these values that a column of a table has; None if it has none."""
    chosen, named = where((column, values))
    found = ask_within(conn, f"SELECT {column} FROM {table}{chosen} LIMIT 1", named)
    return str(found[0][0]) if found else None


def rows_with(
    conn: Connection, statement: str, column: str, values: Sequence[str]
) -> Iterator[Sequence[Any]]:
    """The rows of a statement in plain SQL whose column has one of these values, which may be many."""
    for some in rows.chunks(values):
        chosen, named = where((column, some))
        yield from ask_within(conn, f"{statement}{chosen}", named)


def asker(conn: Connection) -> Ask:
    """Runs statements in plain SQL within a transaction."""
    return lambda statement, values: ask_within(conn, statement, values)


@cache
def _replacement(table: Table, key: Column[str]) -> tuple[UpdateBase, UpdateBase]:
    return delete(table).where(key == bindparam("replaced")), insert(table)


@cache
def _text(statement: UpdateBase, columns: tuple[str, ...]) -> str:
    """A statement for SQLite with values of these columns, and no others."""
    compiled = statement.compile(dialect=_SQLITE, column_keys=columns)
    assert compiled.params.keys() <= set(columns)
    return str(compiled)
