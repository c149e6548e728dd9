"""Single statements on SQLite: SQLAlchemy's pool lends a connection in more time than SQLite answers in."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from sqlalchemy import Engine

from starburst.store.databases import sqlite


class SqliteAsks:
    """Reads of one statement each, on a connection that is kept for them beside those of the pool."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = Lock()
        self._connection: sqlite3.Connection | None = None

    def ask(self, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """The rows; while another thread asks, on a connection of the pool.

        Raises:
            UnusableError: the database is out of reach.
            sqlalchemy.exc.TimeoutError: all connections of the pool are in use.
        """
        if not self._turn.acquire(blocking=False):
            return sqlite.ask(self._engine, statement, values)
        try:
            if self._connection is None:
                self._connection = sqlite.detached(self._engine, statement, values)
            return sqlite.ask_on(self._connection, self._engine, statement, values)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close that connection, once a statement that goes on is over; the next one opens it again."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
