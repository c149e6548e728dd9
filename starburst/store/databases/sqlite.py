"""SQLite: durable settings, write-ahead logging, explicit transactions, the file and its mode."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Engine, PoolProxiedConnection, event
from sqlalchemy.exc import DBAPIError

from starburst.store.databases.beginning import writes
from starburst.store.databases.sqlite_failures import trouble
from starburst.store.errors import StoreError, UnusableError

#: Seconds between two attempts to switch a file to WAL.
WAL_RETRY_S = 0.01


def path_of(engine: Engine) -> Path | None:
    """The file of a SQLite database; None for other databases."""
    name = engine.url.database
    return Path(name) if engine.dialect.name == "sqlite" and name and name != ":memory:" else None


def make_file(path: Path) -> None:
    """Create a database file with mode 0600; SQLite gives its side files the same mode.

    Raises:
        StoreError: it cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Exclusive: closing a file that this process has open elsewhere would drop SQLite's locks on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not path.parent.is_dir():
            raise StoreError(f"the store {path} cannot be made: {path.parent} is not a directory") from None
    except OSError as error:
        raise StoreError(f"the store {path} cannot be made: {error.strerror}") from None


def set_up(engine: Engine, busy_ms: int, *, reads: bool = False) -> None:
    """Give the connections of an engine their settings; `reads`: they cannot write."""
    path = path_of(engine)
    pragmas = [f"busy_timeout = {busy_ms}", "synchronous = FULL", "foreign_keys = ON"]
    if reads:
        pragmas.append("query_only = ON")

    def do_begin(connection: Any) -> None:
        # A transaction that reads first and locks later fails if another process writes in between.
        how = "BEGIN IMMEDIATE" if writes(connection.info) else "BEGIN"
        connection.dbapi_connection.execute(how).close()

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # SQLAlchemy begins transactions, not pysqlite
        try:
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}").close()
            if not reads:
                _make_wal(connection, busy_ms)
        except sqlite3.Error:
            connection.close()  # the pool forgets it
            raise

    event.listen(engine, "connect", connected)
    dialect: Any = engine.dialect
    dialect.do_begin = do_begin
    event.listen(engine, "handle_error", lambda context: trouble(context.original_exception, path))


def ask(engine: Engine, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
    """The rows of one statement in plain SQL, which is a transaction by itself."""
    connection = _lent(engine, statement, values)
    try:
        return ask_on(connection, engine, statement, values)
    finally:
        connection.close()


def detached(engine: Engine, statement: str, values: Mapping[str, object]) -> sqlite3.Connection:
    """A connection with the settings of an engine, which its pool does not know; for a statement."""
    connection = _lent(engine, statement, values)
    connection.detach()
    own: Any = connection.dbapi_connection
    return cast(sqlite3.Connection, own)


def _lent(engine: Engine, statement: str, values: Mapping[str, object]) -> PoolProxiedConnection:
    try:
        return engine.raw_connection()
    except (sqlite3.Error, MemoryError) as error:
        raise _failure(error, engine, statement, values) from None


def ask_on(
    connection: Any, engine: Engine, statement: str, values: Mapping[str, object]
) -> Sequence[Sequence[Any]]:
    """The rows of one statement in plain SQL on a connection, past SQLAlchemy: that takes five times as long
    as SQLite.
    """
    try:
        found: list[Any] = connection.cursor().execute(statement, values).fetchall()
    except (sqlite3.Error, MemoryError) as error:
        raise _failure(error, engine, statement, values) from None
    return found


def write_on(connection: Any, engine: Engine, statement: str, rows: Sequence[Mapping[str, object]]) -> int:
    """Execute one statement in plain SQL once per row, as `ask_on`; how many rows of the table it changed."""
    cursor, dialect = connection.cursor(), engine.dialect
    try:
        if len(rows) == 1:
            dialect.do_execute(cursor, statement, rows[0])
        else:
            dialect.do_executemany(cursor, statement, rows)
    except (sqlite3.Error, MemoryError) as error:
        raise _failure(error, engine, statement, rows[0]) from None
    return int(cursor.rowcount)


def _failure(
    error: BaseException, engine: Engine, statement: str, values: Mapping[str, object]
) -> BaseException:
    """What SQLAlchemy raises for an error of the driver."""
    found = trouble(error, path_of(engine))
    return found or DBAPIError.instance(statement, dict(values), error, sqlite3.Error)


class FileWatch:
    """Notices writes of other connections, by SQLite's own counter."""

    def __init__(self, engine: Engine) -> None:
        """`engine` has one connection: the counter is relative to that."""
        self._engine = engine

    def version(self) -> int:
        """A number that changes when another connection writes.

        It is asked for ten times a second, so it goes past SQLAlchemy, and without a transaction. It has the
        connection for itself: of one that another thread uses the driver takes errors of either for both's.
        """
        connection = self._engine.raw_connection()
        try:
            return int(connection.cursor().execute("PRAGMA data_version").fetchone()[0])
        except (sqlite3.Error, MemoryError) as error:
            raise trouble(error, path_of(self._engine)) or error from None
        finally:
            connection.close()

    def close(self) -> None:
        """There is nothing to end."""


def watch(engine: Engine) -> FileWatch:
    """What notices writes of other connections."""
    return FileWatch(engine)


def next_numbers(conn: Connection) -> dict[str, int]:
    """The last number given out, by table with numbers that are never reused."""
    return {row[0]: row[1] for row in conn.exec_driver_sql("SELECT name, seq FROM sqlite_sequence")}


def number_from(conn: Connection, table: str, last: int) -> None:
    """Have a table give out numbers after `last`."""
    conn.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
    conn.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))


def damage(path: Path) -> str:
    """The errors that SQLite's integrity check finds, "" if none; it reads the whole file.

    It opens its own connection, because existing ones may answer from cached pages.

    Raises:
        UnusableError: the file cannot be read now.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=1.0)) as conn:
            found = str(conn.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        what = trouble(error, path)
        if isinstance(what, UnusableError):
            raise what from None
        return str(error)
    return "" if found == "ok" else found


def _make_wal(connection: sqlite3.Connection, busy_ms: int) -> None:
    """Switch the file to write-ahead logging, which is persistent.

    SQLite refuses at once, without the busy timeout, when two processes switch a new file at the same time;
    the switch is therefore repeated.
    """
    end = time.monotonic() + busy_ms / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= end:
                raise
            time.sleep(WAL_RETRY_S)
        else:
            return


def end_silent_writer(_conn: Connection) -> None:
    """Do nothing: only the end of a process takes SQLite's lock from it."""
