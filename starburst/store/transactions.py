"""Transactions that replace lost connections, and that ask whether a commit without an answer took effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, RootTransaction, text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from starburst.store.databases import sqlite
from starburst.store.databases.beginning import begin
from starburst.store.engine import took_effect
from starburst.store.errors import BusyError, LostError


@contextmanager
def transaction(engine: Engine, *, writes: bool = False) -> Iterator[Connection]:
    """A transaction of a read engine, or of one that writes; an exception rolls it back.

    Raises:
        UnusableError: it did not take effect: the database is busy, full, away or lost.
        UnsureError: the connection was lost during the commit, and the database cannot be asked about it.
    """
    commits, write = False, None
    try:
        begun = _begun(engine, writes)
        with begun.connection as conn, begun:
            write = conn.info.get("write")
            yield conn
            commits = writes
    except LostError:
        if not commits or not took_effect(engine, write):
            raise


def ask(engine: Engine, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
    """The rows of one statement in plain SQL, which is a transaction by itself.

    Raises:
        UnusableError: as of `transaction`.
    """
    if engine.dialect.name != "sqlite":
        with transaction(engine) as conn:
            return ask_within(conn, statement, values)
    try:
        return sqlite.ask(engine, statement, values)
    except PoolTimeoutError:
        raise _all_in_use(engine) from None


def ask_within(conn: Connection, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
    """The rows, if there are any, of one statement in plain SQL within a transaction."""
    if conn.dialect.name == "sqlite":
        return sqlite.ask_on(conn.connection, conn.engine, statement, values)
    found = conn.execute(text(statement), values)
    return found.all() if found.returns_rows else ()


def _begun(engine: Engine, writes: bool) -> RootTransaction:
    """A transaction on a connection of its own; one that was lost while it was idle is replaced, once."""
    try:
        return _begin(engine, writes)
    except LostError:
        return _begin(engine, writes)


def _begin(engine: Engine, writes: bool) -> RootTransaction:
    """Begin; one that `writes` takes the write lock at its start."""
    try:
        conn = engine.connect()
    except PoolTimeoutError:
        raise _all_in_use(engine) from None
    try:
        return begin(conn, writes)
    except BaseException:
        conn.close()
        raise


def _all_in_use(engine: Engine) -> BusyError:
    where = engine.url.database if engine.dialect.name == "sqlite" else "the store"
    return BusyError(f"{where}: too many ask at once; ask again")
