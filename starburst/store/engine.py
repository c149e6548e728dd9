"""Opening the database: safe settings, honest transactions, the newest schema."""

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

#: How long a writer waits for another one, milliseconds.
BUSY_TIMEOUT_MS = 30_000
#: Connections that read at a time.
READERS = 8
#: How long a thread waits for one of this process's connections, seconds.
TURN_S = 10.0

#: How soon a file that would not become WAL is asked again, seconds.
WAL_RETRY_S = 0.01

MIGRATIONS = Path(__file__).parent / "migrations"


def open_engine(where: str | Path, busy_ms: int | None = None) -> Engine:
    """An engine on a file or a database URL, with the schema at its newest.

    It keeps one connection: SQLite's data_version must always be asked on the same one. It waits for other
    writers for `busy_ms`, BUSY_TIMEOUT_MS if None.

    Raises:
        StoreError: it cannot be opened, or a newer Starburst made it.
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
    """Connections to the same database that only read, READERS at most, opened when they are needed."""
    if engine.dialect.name != "sqlite" or path_of(engine) is None:
        return engine
    reading = create_engine(
        engine.url, poolclass=QueuePool, pool_size=READERS, max_overflow=0, pool_timeout=TURN_S
    )
    translate(reading, path_of(engine))
    _set_up_sqlite(reading, BUSY_TIMEOUT_MS, "query_only = ON")
    return reading


def path_of(engine: Engine) -> Path | None:
    """The file of a database that is one."""
    name = engine.url.database
    return Path(name) if engine.dialect.name == "sqlite" and name and name != ":memory:" else None


def damage(path: Path) -> str:
    """What SQLite finds wrong with the file of a database, "" if nothing; it reads the whole of it.

    Over a connection of its own, for others answer from pages that they have read long ago.

    Raises:
        UnusableError: it cannot be looked at now.
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
    """The same engine for transactions that write: SQLite takes the write lock at their start.

    A transaction that read first and asked for the lock later would fail if another process wrote meanwhile.
    """
    return engine.execution_options(writes=True)


def migrate(engine: Engine) -> None:
    """Bring the schema to HEAD. Of two processes that try at once, one does and the other finds it done."""
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
    """The schema's revision; None in an empty database."""
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
    """Create a new store for its owner's eyes only; SQLite gives its side files the same mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Exclusive: closing a file that is open in this process elsewhere would drop SQLite's locks on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not path.parent.is_dir():
            raise StoreError(f"the store {path} cannot be made: {path.parent} is not a directory") from None
    except OSError as error:
        raise StoreError(f"the store {path} cannot be made: {error.strerror}") from None


def _set_up_sqlite(engine: Engine, busy_ms: int, *more: str) -> None:
    pragmas = (f"busy_timeout = {busy_ms}", "synchronous = FULL", "foreign_keys = ON", *more)

    def set_up(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where SQLAlchemy says, not pysqlite
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()
        _make_wal(connection, busy_ms)

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", _begin_sqlite)


def _make_wal(connection: sqlite3.Connection, busy_ms: int) -> None:
    """Keep a write-ahead log, which stays with the file.

    Of two processes that make one of a fresh file at once, SQLite refuses the second on the spot, whatever
    the busy timeout says: it must be asked again.
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
