"""What is asked at every look is plain SQL, or a statement that was built once; BEGIN is no statement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError

from starburst.store import leader
from starburst.store.engine import open_engine
from starburst.store.errors import UnusableError
from starburst.store.listings import queries
from starburst.store.store import Store
from starburst.store.transactions import ask_within

pytestmark = pytest.mark.sqlite


def _look(store: Store) -> None:
    store.requests(3)
    store.set_fact("tried", None)
    store.submission("j1")
    queries.record(store, "j1")
    queries.pace(store)
    queries.decisions(store, after_seq=5, limit=7)


def test_a_look_executes_the_statements_of_the_look_before(path: Path) -> None:
    with Store.open(path) as store:
        executed: list[Any] = []
        for engine in (store._engine, store._readers):
            event.listen(engine, "before_execute", lambda _conn, statement, *_: executed.append(statement))
        _look(store)
        first, executed[:] = executed[:], []
        _look(store)
    assert len(first) >= 7
    assert [one for one, other in zip(first, executed, strict=True) if one is not other] == []


def test_the_row_of_the_leader_and_documents_are_asked_for_past_sqlalchemy(path: Path) -> None:
    with Store.open(path) as store:
        store.fence = leader.epoch_fence(leader.take(store, None, leader.LeaderClaim("one")) or 0)
        executed: list[Any] = []
        for engine in (store._engine, store._readers):
            event.listen(engine, "before_execute", lambda _conn, statement, *_: executed.append(statement))
        assert leader.leader_record(store) is not None
        leader.renew(store, 1, "")
        assert store.fact("facts") is None
    assert executed == []


def test_an_error_of_plain_sql_is_one_of_sqlalchemy_or_of_the_store(path: Path) -> None:
    with Store.open(path) as store:
        with pytest.raises(DBAPIError, match="no such table: nowhere"):
            store.ask("SELECT 1 FROM nowhere", {})
        with store.read() as conn, pytest.raises(UnusableError, match="readonly database"):
            ask_within(conn, "DELETE FROM facts", {})


def test_an_error_at_the_begin_of_a_transaction_is_one_of_sqlalchemy(path: Path) -> None:
    engine = open_engine(path)
    with engine.connect() as conn:
        driver: Any = conn.connection.dbapi_connection
        driver.execute("BEGIN")
        with pytest.raises(OperationalError, match="within a transaction"):
            conn.begin()
        assert not driver.in_transaction
    engine.dispose()
