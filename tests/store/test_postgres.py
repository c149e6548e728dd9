"""PostgreSQL: lost connections and lost answers, a server that stops, stands still or refuses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from starburst.store.databases import postgres
from starburst.store.engine import open_engine
from starburst.store.errors import BusyError, LostError, StoreError, UnsureError, UnusableError
from starburst.store.listings import queries
from starburst.store.schema import HEAD
from starburst.store.store import Store
from tests.postgres import Server, database_of, server
from tests.store.samples import started, step, submission
from tests.store.test_engine import OPEN

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    """A server of its own: some of these tests stop it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with server(port) as one:
        one.sql("CREATE DATABASE ready")
        open_engine(one.url("ready")).dispose()
        yield one


@pytest.fixture
def url(running: Server) -> str:
    return running.create("ready")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url, 2_000) as opened:
        yield opened


def cut(running: Server, url: str) -> None:
    """End all connections to a database."""
    others = f"datname = '{database_of(url)}' AND pid != pg_backend_pid()"
    running.sql(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}")


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], None]], None]:
    """Has the next commit go through a function instead, once."""
    plain = postgres.BoundedConnection.commit

    def install(instead: Callable[[Any], None]) -> None:
        def commit(connection: Any) -> None:
            monkeypatch.setattr(postgres.BoundedConnection, "commit", plain)
            instead(connection)

        monkeypatch.setattr(postgres.BoundedConnection, "commit", commit)

    return install


def test_an_idle_connection_that_was_lost_is_replaced(running: Server, url: str, store: Store) -> None:
    store.set_fact("a", 1)
    assert store.fact("a") == 1
    cut(running, url)
    assert store.fact("a") == 1
    store.set_fact("a", 2)
    assert store.fact("a") == 2


def test_a_transaction_that_is_cut_has_no_effect(running: Server, url: str, store: Store) -> None:
    def put() -> None:
        with store.write() as conn:
            conn.execute(text("INSERT INTO facts VALUES ('a', '1')"))
            cut(running, url)
            conn.execute(text("INSERT INTO facts VALUES ('b', '1')"))

    with pytest.raises(LostError, match="was lost"):
        put()
    assert store.fact("a") is None


def test_a_commit_that_is_cut_before_it_reaches_the_server_has_no_effect(
    running: Server, url: str, store: Store, at_commit: Any
) -> None:
    def before(connection: Any) -> None:
        cut(running, url)
        type(connection).commit(connection)

    at_commit(before)
    with pytest.raises(LostError):
        store.set_fact("a", 1)
    assert store.fact("a") is None


def test_a_commit_whose_answer_is_lost_took_effect(
    running: Server, url: str, store: Store, at_commit: Any
) -> None:
    scheduler = started()
    taken = step(scheduler, submissions=[submission("a")])

    def after(connection: Any) -> None:
        type(connection).commit(connection)
        cut(running, url)
        connection.close()
        raise psycopg.OperationalError("the answer is lost")

    at_commit(after)
    store.commit(taken)
    assert queries.job(store, "a").phase == "starting"
    assert len(queries.decisions(store)) == scheduler.state.decided


@pytest.mark.parametrize("arrives", [True, False])
def test_a_step_whose_fate_cannot_be_asked_is_stored_once_when_it_is_repeated(
    running: Server, store: Store, at_commit: Any, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    monkeypatch.setattr(postgres, "RESOLVE_S", 0.0)
    scheduler = started()
    taken = step(scheduler, submissions=[submission("a")])

    def lose(connection: Any) -> None:
        if arrives:
            type(connection).commit(connection)
        running.stop("immediate")
        connection.close()
        raise psycopg.OperationalError("the answer is lost")

    at_commit(lose)
    try:
        for _ in range(2):
            with pytest.raises(UnsureError, match="not known whether the last write took effect"):
                store.commit(taken)
    finally:
        running.start()
    store.commit(taken)
    assert len(queries.decisions(store)) == scheduler.state.decided
    store.commit(step(scheduler, submissions=[submission("b")], now=1.0))
    assert [row.id for row in queries.jobs(store)] == ["a", "b"]


def test_a_server_that_stands_still_counts_as_lost(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "ANSWER_S", 0.5)
    with Store.open(url, 100) as store:
        with store.write() as conn:
            backend = conn.scalar(text("SELECT pg_backend_pid()"))
        os.kill(backend, signal.SIGSTOP)
        try:
            store.set_fact("a", 1)  # over a new connection
        finally:
            os.kill(backend, signal.SIGCONT)
        assert store.fact("a") == 1


def test_a_client_that_stands_still_holds_up_other_writers_for_seconds_only(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SILENCE_S", 1)
    with Store.open(url) as still, Store.open(url) as other:

        def stand_still() -> None:
            with still.write() as conn:
                other.set_fact("a", 1)
                conn.execute(text("SELECT 1"))

        with pytest.raises(LostError):
            stand_still()
        assert other.fact("a") == 1


def test_writers_take_turns_and_readers_do_not_wait(url: str) -> None:
    with Store.open(url, 50) as first, Store.open(url, 50) as second, first.write() as conn:
        conn.execute(text("INSERT INTO facts VALUES ('a', '1')"))
        with pytest.raises(BusyError, match="another process is writing"):
            second.set_fact("a", 2)
        assert second.fact("a") is None


def test_writes_of_others_are_noticed_and_own_ones_are_not(running: Server, url: str, store: Store) -> None:
    with Store.open(url) as other:
        seen = store.data_version()
        store.set_fact("a", 1)
        assert store.data_version() == seen
        other.set_fact("a", 2)
        assert _changed(store, seen)
        seen = store.data_version()
        cut(running, url)
        assert _changed(store, seen)


def _changed(store: Store, seen: int) -> bool:
    """Whether the version changes; the server tells of a write just after its commit."""
    end = time.monotonic() + 30
    while store.data_version() == seen and time.monotonic() < end:
        time.sleep(0.01)
    return store.data_version() != seen


def test_text_is_ordered_by_bytes_and_nul_is_replaced(url: str) -> None:
    with Store.open(url) as store, store.write() as conn:
        for key in ("b", "B", "a\0"):
            conn.execute(text("INSERT INTO facts VALUES (:key, '1')"), {"key": key})
        mine = text("SELECT key FROM facts WHERE length(key) < 3 ORDER BY key")
        assert list(conn.scalars(mine)) == ["B", "a\ufffd", "b"]


def test_processes_that_open_a_fresh_database_at_once_agree(running: Server) -> None:
    command = [sys.executable, "-c", OPEN, running.create()]
    openers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [opener.communicate(timeout=60)[0].strip() for opener in openers]
    assert [opener.returncode for opener in openers] == [0] * 3
    assert len(said[0]) == 8
    assert len(set(said)) == 1


@pytest.mark.parametrize(
    ("database", "user", "says"),
    [
        ("nosuch", "starburst", r'"nosuch" does not exist.*createdb'),
        ("postgres", "nosuch", r'"nosuch" does not exist.*createuser'),
        (
            "postgres",
            "weak",
            r"lacks a right .*schema public.*GRANT ALL ON SCHEMA public",
        ),
    ],
)
def test_a_database_that_refuses_is_an_error_with_its_mend(
    running: Server, database: str, user: str, says: str
) -> None:
    with suppress(psycopg.Error):
        running.sql("CREATE ROLE weak LOGIN")
    with pytest.raises(StoreError, match=says) as error:
        Store.open(running.url(database, user))
    assert not isinstance(error.value, UnusableError)
    assert "\n" not in str(error.value)


def test_a_server_that_is_away_or_takes_no_writes_is_waited_for(running: Server, url: str) -> None:
    with pytest.raises(UnusableError, match=r"PostgreSQL does not answer.*start it"):
        Store.open("postgresql://starburst@127.0.0.1:1/none")
    running.sql(f"ALTER DATABASE {database_of(url)} SET default_transaction_read_only = on")
    with Store.open(url) as store:
        with pytest.raises(UnusableError, match="takes no writes"):
            store.set_fact("a", 1)
        assert store.fact("a") is None


def test_a_server_that_is_too_old_and_a_schema_that_is_too_new_are_refused(
    running: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(postgres, "OLDEST", 990_000)
        with pytest.raises(StoreError, match="Starburst needs 99 or newer"):
            Store.open(url)
    running.sql("UPDATE alembic_version SET version_num = '9999'", database_of(url))
    with pytest.raises(StoreError, match=rf"schema 9999, made by a newer Starburst; .* up to {HEAD}"):
        Store.open(url)
