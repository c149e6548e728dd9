"""Transactions that replace lost connections, and that ask whether a commit without an answer took effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, RootTransaction, text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from starburst.store.databases import sqlite
from starburst.store.databases.beginning import begin
from starburst.store.databases.sqlite_asks import SqliteAsks
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


class Asks:
    """Runs single statements in plain SQL, each a transaction by itself; thread-safe."""

    def __init__(self, engine: Engine) -> None:
        """`engine` reads; in SQLite one connection more than it has is open as long as this is."""
        self._engine = engine
        self._on_file = None if sqlite.path_of(engine) is None else SqliteAsks(engine)

    def ask(self, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """The rows.

        Raises:
            UnusableError: as of `transaction`.
        """
        if self._on_file is None:
            with transaction(self._engine) as conn:
                return ask_within(conn, statement, values)
        try:
            return self._on_file.ask(statement, values)
        except PoolTimeoutError:
            raise _all_in_use(self._engine) from None

    def close(self) -> None:
        """Close the connection; a later statement opens it again."""
        if self._on_file is not None:
            self._on_file.close()


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
