"""What is asked at every look is plain SQL, or a statement that was built once; BEGIN is no statement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError

from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from starburst.core.scheduler import Scheduler
from starburst.store import leader
from starburst.store.engine import open_engine
from starburst.store.errors import UnusableError
from starburst.store.listings import queries
from starburst.store.quota import Quota
from starburst.store.store import Store
from starburst.store.transactions import ask_within
from tests.store.samples import started, step, submission, take_up

pytestmark = pytest.mark.sqlite


def _look(store: Store, scheduler: Scheduler, job: str) -> None:
    store.submission("none")
    store.submit([submission(job)], 0.0, Quota(per_user=100, per_queue=100))
    take_up(store, scheduler, 5.0)


def test_a_look_executes_the_statements_of_the_look_before(path: Path) -> None:
    with Store.open(path) as store:
        executed: list[Any] = []
        scheduler = started()
        for engine in (store._engine, store._readers):
            event.listen(engine, "before_execute", lambda _conn, statement, *_: executed.append(statement))
        _look(store, scheduler, "a")
        first, executed[:] = executed[:], []
        _look(store, scheduler, "b")
    assert len(first) >= 3
    assert [one for one, other in zip(first, executed, strict=True) if one is not other] == []


def test_what_is_asked_and_stored_all_the_time_goes_past_sqlalchemy(path: Path) -> None:
    with Store.open(path) as store:
        store.fence = leader.epoch_fence(leader.take(store, None, leader.LeaderClaim("one")) or 0)
        executed: list[Any] = []
        for engine in (store._engine, store._readers):
            event.listen(engine, "before_execute", lambda _conn, statement, *_: executed.append(statement))
        assert leader.leader_record(store) is not None
        leader.renew(store, 1, "")
        assert store.fact("facts") is None
        store.set_fact("tried", None)
        scheduler = started()
        store.commit(step(scheduler, submissions=[submission("a"), submission("b")]))
        store.actions_done(["start/a/1"], 2.0)
        store.commit(step(scheduler, [RunStarted("a", 1), RunEnded("a", 1, RunEnd.EXITED, 0)], 1.0))
        assert store.submissions(["a"])
        assert store.requests(3) == []
        assert queries.record(store, "a") is not None
        assert queries.pace(store).speed == 1.0
        assert queries.decisions(store, "a", last=2)
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
