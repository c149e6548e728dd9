"""Reads a store's file with SQLite's driver alone: to import SQLAlchemy takes longer than to list."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starburst.store.databases.sqlite_failures import trouble
from starburst.store.listings.plain_sql import Ask

MIGRATIONS = Path(__file__).parents[1] / "migrations" / "versions"
#: Longest wait for other processes, seconds.
BUSY_S = 30.0


@contextmanager
def open_current(path: Path) -> Iterator[SqliteReader | None]:
    """A reader of the file; None unless it has the newest schema and no replica ever led on it.

    With None, `Store.open` creates or migrates the file, or says what is wrong with it.
    """
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None
        )
    except sqlite3.Error:
        yield None
        return
    try:
        yield SqliteReader(connection, path) if _is_plain(connection) else None
    finally:
        connection.close()


class SqliteReader:
    """Read transactions on one connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @contextmanager
    def read(self) -> Iterator[Ask]:
        """A read transaction on one consistent state.

        Raises:
            StoreError: the file is damaged, or cannot be read now.
        """

        def ask(statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
            return self._connection.execute(statement, dict(values)).fetchall()

        try:
            self._connection.execute("BEGIN")
            try:
                yield ask
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise trouble(error, self._path) or error from None


def newest_revision() -> str:
    """The revision of the newest migration, with which its file's name begins."""
    return max(name.partition("_")[0] for name in os.listdir(MIGRATIONS) if name.endswith(".py"))


def _is_plain(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("PRAGMA query_only = ON")
        revisions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        replicas = connection.execute("SELECT 1 FROM leader WHERE renews <> 0").fetchall()
    except sqlite3.Error:
        return False
    return revisions == [(newest_revision(),)] and not replicas
