"""PostgreSQL: connections with time limits, one writer at a time, and the names of writes.

Writers take turns by an advisory lock, as they do in SQLite: what a write transaction reads first stays true
until it commits, and rows are numbered in the order in which they become visible.

Each write transaction writes its number into the row of its connection (table `writers`). If the answer to a
commit is lost, that row says whether the transaction took effect. The row is decisive, and not the number of
the transaction in the server, because a standby server that took over may have given that number to another.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import Connection, Dialect, Engine, event, select, text

from starburst.store.databases.beginning import begin, writes
from starburst.store.databases.postgres_failures import trouble
from starburst.store.errors import StoreError, UnsureError, UnusableError
from starburst.store.schema import writers

#: The oldest version of the server that works, as PostgreSQL numbers them: 13.0.
OLDEST = 130_000
#: Key of the advisory lock of writers: "starburs" in ASCII, as a signed 64-bit number.
WRITE_LOCK = int.from_bytes(b"starburs", "big")
#: The channel on which each write is announced.
CHANNEL = "starburst"
#: Seconds until an attempt to connect is given up.
CONNECT_S = 5
#: Seconds that a statement may take beyond its wait for a lock; also until a silent server counts as lost.
ANSWER_S = 30.0
#: Seconds for a statement of a migration.
MIGRATION_S = 3600.0
#: Seconds after which the server ends a write transaction whose client is silent: a client that stands still
#: or is cut off holds up other writers for no longer.
SILENCE_S = 5
#: Seconds for which it is asked whether a write took effect.
RESOLVE_S = 10.0
#: Pause between two such questions, seconds.
RESOLVE_PAUSE_S = 0.25

#: Settings of libpq: the end of a connection is noticed within about ten seconds.
NETWORK = {
    "connect_timeout": CONNECT_S,
    "keepalives": 1,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


#: Names this process to the server.
PROCESS = secrets.token_hex(4)


@dataclass(frozen=True, slots=True)
class Write:
    """The name of a write transaction: its connection's name and its number there."""

    writer: str
    number: int


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server does not answer within `answer_s` seconds."""

    answer_s = ANSWER_S

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        """The result of a call to the server.

        Raises:
            OperationalError: there was no answer in time.
        """
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.answer_s)
        except errors._WaitTimeout:
            self.close()
            raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s") from None


class _Text(StrDumperUnknown):
    """Text as PostgreSQL takes it: NUL, which it cannot hold, becomes U+FFFD."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)


class WriteListener:
    """Counts the writes of other engines, by LISTEN: looking costs no exchange with the server."""

    def __init__(self, engine: Engine) -> None:
        """`engine` opens a connection of its own for this; what it writes is not counted."""
        self._engine = engine
        self._own: str = engine.get_execution_options()["owner"]
        self._connection: BoundedConnection | None = None
        self._version = 0

    def version(self) -> int:
        """A number that changes when another engine writes; after a lost connection it changes, too.

        Raises:
            StoreError: the database is out of reach.
        """
        try:
            heard = self._heard()
        except psycopg.OperationalError:
            self.close()
            heard = self._heard()
        self._version += sum(not writer.startswith(self._own) for writer in heard)
        return self._version

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _heard(self) -> list[str]:
        """The names of writes since the last look."""
        if self._connection is None:
            self._connection = self._listening()
            self._version += 1  # what was written before is news
        return [one.payload for one in self._connection.notifies(timeout=0)]

    def _listening(self) -> BoundedConnection:
        arguments, options = self._engine.dialect.create_connect_args(self._engine.url)
        try:
            connection = _connect(arguments, options)
            connection.autocommit = True
            connection.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error as error:
            raise trouble(error) or error from None
        return connection


def set_up(engine: Engine, busy_ms: int, *, reads: bool = False) -> None:
    """Give the connections of an engine their settings; `reads`: they cannot write."""

    def connect(_dialect: Dialect, _record: object, arguments: Any, options: dict[str, Any]) -> Any:
        return _connect(arguments, {"application_name": f"starburst-{PROCESS}", **options})

    def connected(connection: BoundedConnection, record: Any) -> None:
        connection.autocommit = True  # SQLAlchemy begins transactions, not psycopg
        connection.answer_s = ANSWER_S + busy_ms / 1000
        connection.adapters.register_dumper(str, _Text)
        settings = {
            "lock_timeout": busy_ms,
            "statement_timeout": round(busy_ms + ANSWER_S * 1000),
            "idle_in_transaction_session_timeout": 60_000 if reads else SILENCE_S * 1000,
            "tcp_keepalives_idle": 4,
            "tcp_keepalives_interval": 2,
            "tcp_keepalives_count": 3,
        }
        connection.execute(";".join(f"SET {name} = {value}" for name, value in settings.items()))
        record.info["write"] = Write(f"{engine.get_execution_options()['owner']}-{secrets.token_hex(4)}", 0)

    engine.update_execution_options(owner=secrets.token_hex(6))
    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", connected, insert=True)
    event.listen(engine, "begin", _begin)
    event.listen(engine, "handle_error", lambda it: trouble(it.original_exception, lost=it.is_disconnect))


def watch(engine: Engine) -> WriteListener:
    """What notices writes of other engines."""
    return WriteListener(engine)


def next_numbers(conn: Connection) -> dict[str, int]:
    """The last number given out, by table with numbers that are never reused."""
    used = text(
        "SELECT sequencename, last_value FROM pg_sequences "
        "WHERE schemaname = current_schema() AND last_value IS NOT NULL"
    )
    return {name.removesuffix("_seq_seq"): last for name, last in conn.execute(used)}


def number_from(conn: Connection, table: str, last: int) -> None:
    """Have a table give out numbers after `last`."""
    setting = text("SELECT setval(pg_get_serial_sequence(:table, 'seq'), :last)")
    conn.execute(setting, {"table": table, "last": last})


def others(conn: Connection) -> int:
    """The number of connections that other processes of Starburst have to this database."""
    count = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name LIKE 'starburst-%' AND application_name <> current_setting('application_name')"
    )
    return conn.scalar(count) or 0


def patient(conn: Connection) -> None:
    """Lift the time limits of statements for this transaction: a migration may have much to do."""
    conn.execute(text("SET LOCAL statement_timeout = 0"))
    _driver(conn).answer_s = MIGRATION_S


def collate(conn: Connection) -> None:
    """Order all text by its bytes, as SQLite does, whatever the locale of the database."""
    rest = text(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND data_type = 'text' AND collation_name IS NULL "
        "ORDER BY table_name, column_name"
    )
    for table, column in conn.execute(rest).all():
        conn.execute(text(f'ALTER TABLE "{table}" ALTER COLUMN "{column}" TYPE text COLLATE "C"'))


def took_effect(engine: Engine, write: Write) -> bool:
    """Whether a write took effect; asked once the lock of writers shows that it is over.

    Raises:
        UnsureError: the database does not answer for RESOLVE_S seconds.
    """
    end = time.monotonic() + RESOLVE_S
    number = select(writers.c.number).where(writers.c.id == write.writer)
    while True:
        try:
            with engine.connect() as conn, begin(conn, "unnamed"):
                return (conn.scalar(number) or 0) >= write.number
        except UnusableError as error:
            if time.monotonic() >= end:
                raise UnsureError(str(error), write) from None
        time.sleep(RESOLVE_PAUSE_S)


def end_silent_writer(conn: Connection) -> None:
    """End the write transaction whose client has been silent for SILENCE_S seconds, if there is one.

    The server does so by itself between two statements, but not within a batch of them.
    """
    high, low = WRITE_LOCK >> 32, WRITE_LOCK & 0xFFFFFFFF
    silent = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid) "
        f"WHERE locktype = 'advisory' AND granted AND classid = {high} AND objid = {low} AND objsubid = 1 "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        f"AND wait_event = 'ClientRead' AND query_start < clock_timestamp() - interval '{SILENCE_S} s'"
    )
    conn.execute(silent)


def _begin(conn: Connection) -> None:
    """Begin in one exchange with the server: writers take their turn, name the write and announce it."""
    told = writes(conn.info)
    if not told:
        conn.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return
    steps = ["BEGIN", f"SELECT pg_advisory_xact_lock({WRITE_LOCK})"]
    if told != "unnamed":
        write = replace(conn.info["write"], number=conn.info["write"].number + 1)
        conn.info["write"] = write
        steps.append(
            f"INSERT INTO writers (id, number, at) VALUES ('{write.writer}', {write.number}, {time.time()}) "
            "ON CONFLICT (id) DO UPDATE SET number = excluded.number, at = excluded.at"
        )
        steps.append(f"NOTIFY {CHANNEL}, '{write.writer}'")
    try:
        conn.exec_driver_sql(";".join(steps))
    except StoreError:
        if not conn.invalidated:
            _driver(conn).rollback()  # SQLAlchemy does not roll back what did not begin
        raise


def _connect(arguments: Sequence[Any], options: Mapping[str, Any]) -> BoundedConnection:
    connection = BoundedConnection.connect(*arguments, **{**NETWORK, **options})
    version = connection.info.server_version
    if version < OLDEST:
        connection.close()
        raise StoreError(
            f"the store: its server is PostgreSQL {version // 10_000}; Starburst needs {OLDEST // 10_000} or "
            "newer: upgrade it"
        )
    return connection


def _driver(conn: Connection) -> BoundedConnection:
    return cast("BoundedConnection", conn.connection.dbapi_connection)
