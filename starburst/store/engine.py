"""Opens the database: durable settings, explicit transactions, the current schema."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, column, create_engine, event, inspect, select, table
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from starburst.store.errors import StoreError, UnusableError
from starburst.store.failures import translate, trouble
from starburst.store.schema import HEAD

#: SQLite busy timeout, milliseconds.
BUSY_TIMEOUT_MS = 30_000
#: Read connections per process.
READERS = 8
#: Seconds that a thread waits for a read connection.
TURN_S = 10.0

#: Seconds between two attempts to switch a file to WAL.
WAL_RETRY_S = 0.01

MIGRATIONS = Path(__file__).parent / "migrations"


def open_engine(where: str | Path, busy_ms: int | None = None) -> Engine:
    """An engine on a file or database URL, with the schema migrated to HEAD.

    It keeps one connection, because SQLite's data_version is relative to a connection. Writers wait for
    each other at most `busy_ms`, BUSY_TIMEOUT_MS if None.

    Raises:
        StoreError: the database cannot be opened, or a newer Starburst created it.
    """
    url = _url(where)
    if url.get_backend_name() == "sqlite" and url.database:
        _make_file(Path(url.database))
    try:
        engine = create_engine(url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=TURN_S)
    except (ImportError, SQLAlchemyError) as error:
        raise StoreError(f"the store {url!r} cannot be used: {error}") from None
    translate(engine, path_of(engine))
    if engine.dialect.name == "sqlite":
        _set_up_sqlite(engine, BUSY_TIMEOUT_MS if busy_ms is None else busy_ms)
    try:
        migrate(engine)
    except SQLAlchemyError as error:
        engine.dispose()
        raise StoreError(f"the store {url!r} cannot be opened: {getattr(error, 'orig', error)}") from None
    except StoreError:
        engine.dispose()
        raise
    return engine


def readers(engine: Engine) -> Engine:
    """An engine of read-only connections, at most READERS, opened on demand."""
    if engine.dialect.name != "sqlite" or path_of(engine) is None:
        return engine
    reading = create_engine(
        engine.url, poolclass=QueuePool, pool_size=READERS, max_overflow=0, pool_timeout=TURN_S
    )
    translate(reading, path_of(engine))
    _set_up_sqlite(reading, BUSY_TIMEOUT_MS, "query_only = ON")
    return reading


def path_of(engine: Engine) -> Path | None:
    """The file of a SQLite database; None for other databases."""
    name = engine.url.database
    return Path(name) if engine.dialect.name == "sqlite" and name and name != ":memory:" else None


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


def writer(engine: Engine) -> Engine:
    """The engine for write transactions: SQLite takes the write lock at their start.

    A transaction that reads first and locks later fails if another process writes in between.
    """
    return engine.execution_options(writes=True)


def migrate(engine: Engine) -> None:
    """Migrate the schema to HEAD. Of two concurrent processes one migrates, the other finds the result."""
    with engine.connect() as conn:
        if revision(conn) == HEAD:
            return
    from alembic import command  # noqa: PLC0415 - slow to import, and rarely needed
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with writer(engine).begin() as conn:
        config.attributes["connection"] = conn
        try:
            command.upgrade(config, "head")
        except CommandError:
            raise StoreError(
                f"the store {engine.url!r} has schema {revision(conn)}, made by a newer Starburst; this one "
                f"knows schemas up to {HEAD}: upgrade it"
            ) from None


def revision(conn: Connection) -> str | None:
    """The revision of the schema; None in an empty database."""
    if not inspect(conn).has_table("alembic_version"):
        return None
    return conn.scalar(select(column("version_num")).select_from(table("alembic_version")))


def _url(where: str | Path) -> URL:
    if isinstance(where, Path) or "://" not in where:
        return URL.create("sqlite", database=str(where))
    try:
        return make_url(where)
    except ArgumentError:
        raise StoreError(f"{where!r} is neither a file nor a database URL") from None


def _make_file(path: Path) -> None:
    """Create a database file with mode 0600; SQLite gives its side files the same mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Exclusive: closing a file that this process has open elsewhere would drop SQLite's locks on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not path.parent.is_dir():
            raise StoreError(f"the store {path} cannot be made: {path.parent} is not a directory") from None
    except OSError as error:
        raise StoreError(f"the store {path} cannot be made: {error.strerror}") from None


def _set_up_sqlite(engine: Engine, busy_ms: int, *more: str) -> None:
    pragmas = (f"busy_timeout = {busy_ms}", "synchronous = FULL", "foreign_keys = ON", *more)

    def set_up(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # SQLAlchemy begins transactions, not pysqlite
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()
        _make_wal(connection, busy_ms)

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", _begin_sqlite)


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


def _begin_sqlite(conn: Connection) -> None:
    conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get("writes") else "BEGIN")
