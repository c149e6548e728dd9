"""Single statements in SQLite, on a connection that is kept for them, in several threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy.exc import TimeoutError

from starburst.store.databases import sqlite
from starburst.store.engine import READERS
from starburst.store.errors import BusyError, UnusableError
from starburst.store.store import Store

pytestmark = pytest.mark.sqlite


def test_statements_after_the_first_need_no_connection_of_the_pool(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(path) as store:
        store.ask("SELECT 1", {})
        monkeypatch.setattr(store._readers.pool, "_timeout", 0.0)
        held = [store._readers.raw_connection() for _ in range(READERS)]
        with pytest.raises(BusyError, match="too many ask at once"), store.read():
            pass
        assert store.ask("SELECT 1", {})[0][0] == 1
        for one in held:
            one.close()


def test_threads_that_ask_at_once_do_not_wait_for_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is held up within its statement until the second has its answer, from the pool."""
    answered, began, found = threading.Event(), threading.Event(), []
    real = sqlite.ask_on

    def slow(*of: object) -> object:
        if threading.current_thread() is first:
            began.set()
            assert answered.wait(10.0)
        return real(*of)  # type: ignore[arg-type]

    with Store.open(path) as store:
        monkeypatch.setattr(sqlite, "ask_on", slow)
        first = threading.Thread(target=lambda: found.append(store.ask("SELECT 1", {})[0][0]))
        first.start()
        assert began.wait(10.0)
        assert store.ask("SELECT 2", {})[0][0] == 2
        answered.set()
        first.join()
    assert found == [1]


def test_the_connection_is_closed_with_the_store_and_opened_again_if_need_be(path: Path) -> None:
    store = Store.open(path)
    store.ask("SELECT 1", {})
    assert store._asks._on_file is not None
    kept = store._asks._on_file._connection
    assert kept is not None
    store._asks.close()
    with pytest.raises(Exception, match="closed database"):
        kept.execute("SELECT 1")
    assert store.ask("SELECT 3", {})[0][0] == 3
    store.close()
    assert store._asks._on_file._connection is None
    assert not path.with_name(f"{path.name}-wal").exists()  # the last connection takes it away


def test_nothing_is_written_by_asking(path: Path) -> None:
    with Store.open(path) as store, pytest.raises(UnusableError, match="readonly database"):
        store.ask("DELETE FROM facts", {})


def test_the_counter_is_never_read_amid_a_transaction_on_its_connection(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a connection that two threads use at once the driver takes an error of one for the other's, too."""
    with Store.open(path) as store:
        store.data_version()
        monkeypatch.setattr(store._engine.pool, "_timeout", 0.0)
        with store.write(), pytest.raises(TimeoutError):
            store.data_version()
