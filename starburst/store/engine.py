"""Opens the database, a SQLite file or PostgreSQL, with the current schema."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Protocol

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from starburst.store.databases import sqlite
from starburst.store.databases.beginning import begin
from starburst.store.errors import StoreError
from starburst.store.schema import HEAD

#: Longest wait for other writers, milliseconds.
BUSY_TIMEOUT_MS = 30_000
#: Read connections per process.
READERS = 8
#: Seconds that a thread waits for a read connection.
TURN_S = 10.0

MIGRATIONS = Path(__file__).parent / "migrations"
#: Spellings of PostgreSQL in URLs; psycopg 3 is the driver.
POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


class Watch(Protocol):
    """Notices writes of others."""

    def version(self) -> int:
        """A number that changes when others write."""

    def close(self) -> None:
        """Stop."""


def open_engine(where: str | Path, busy_ms: int | None = None) -> Engine:
    """An engine on a file or database URL, with the schema migrated to HEAD.

    It keeps one connection, because SQLite's data_version is relative to a connection. Writers wait for
    each other at most `busy_ms`, BUSY_TIMEOUT_MS if None.

    Raises:
        UnusableError: the server of the database is away.
        StoreError: the database cannot be opened, or a newer Starburst created it.
    """
    url = store_url(where)
    if url.get_backend_name() == "sqlite" and url.database:
        sqlite.make_file(Path(url.database))
    engine = _engine(url, 1, BUSY_TIMEOUT_MS if busy_ms is None else busy_ms)
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
    if engine.dialect.name == "sqlite" and sqlite.path_of(engine) is None:
        return engine
    return _engine(engine.url, READERS, BUSY_TIMEOUT_MS, reads=True)


def watch(engine: Engine) -> Watch:
    """What notices writes of others to the database of an engine."""
    made: Watch = _database(engine.url).watch(engine)
    return made


def took_effect(engine: Engine, write: object) -> bool:
    """Whether a write whose answer was lost took effect; `write` is `info["write"]` of its connection.

    Raises:
        UnsureError: the database cannot be asked.
    """
    return bool(_database(engine.url).took_effect(engine, write))


def end_silent_writer(conn: Connection) -> None:
    """End a write transaction of another connection whose client is silent, where the database can."""
    _database(conn.engine.url).end_silent_writer(conn)


def next_numbers(conn: Connection) -> dict[str, int]:
    """The last number given out, by table with numbers that are never reused."""
    found: dict[str, int] = _database(conn.engine.url).next_numbers(conn)
    return found


def number_from(conn: Connection, table: str, last: int) -> None:
    """Have a table give out numbers after `last`."""
    _database(conn.engine.url).number_from(conn, table, last)


def others(conn: Connection) -> int:
    """The number of connections of other processes of Starburst to a server's database."""
    return int(_database(conn.engine.url).others(conn))


def store_url(where: str | Path) -> URL:
    """The URL of a file or database.

    Raises:
        StoreError: it is neither.
    """
    if isinstance(where, Path) or "://" not in where:
        return URL.create("sqlite", database=str(where))
    try:
        url = make_url(where)
    except ArgumentError:
        raise StoreError(f"{where!r} is neither a file nor a database URL") from None
    if url.drivername in POSTGRES:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername != "sqlite":
        raise StoreError(
            f"the store {url!r} cannot be used: write postgresql://USER@HOST/DATABASE, or a file"
        )
    return url


def is_postgres(url: str) -> bool:
    """Whether a text is the URL of a PostgreSQL database."""
    try:
        return make_url(url).drivername in POSTGRES
    except (ArgumentError, ValueError):
        return False


def dispose(engine: Engine) -> None:
    """Close all connections; one that another thread still uses is closed when it is given back."""
    if isinstance(engine.pool, QueuePool) and engine.pool.checkedout():
        event.listen(engine.pool, "checkin", lambda connection, _record: connection.close())
    engine.dispose()


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
    with engine.connect() as conn, begin(conn, "unnamed"):
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
    if not conn.dialect.has_table(conn, "alembic_version"):
        return None
    found: str | None = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return found


def _engine(url: URL, connections: int, busy_ms: int, *, reads: bool = False) -> Engine:
    database = _database(url)
    try:
        engine = create_engine(
            url, poolclass=QueuePool, pool_size=connections, max_overflow=0, pool_timeout=TURN_S
        )
    except (ImportError, SQLAlchemyError) as error:
        raise StoreError(f"the store {url!r} cannot be used: {error}") from None
    database.set_up(engine, busy_ms, reads=reads)
    return engine


def _database(url: URL) -> ModuleType:
    """The module of `databases` for a URL.

    Raises:
        StoreError: its driver is not installed.
    """
    if url.get_backend_name() == "sqlite":
        return sqlite
    try:
        from starburst.store.databases import postgres  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise StoreError(
            f"the store {url!r} needs the extra: pip install 'starburst-hybrid[postgres]'"
        ) from None
    return postgres
