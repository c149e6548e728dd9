"""What is stored of many jobs in many queues: counters by queue, and queries that walk an index."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, insert, text

from starburst.app.config import Config as StarburstConfig
from starburst.core.model.events import LeaveRuled
from starburst.store import counters
from starburst.store.counters import WaitHistogram
from starburst.store.engine import MIGRATIONS
from starburst.store.listings import dashboard_queries
from starburst.store.schema import facts
from starburst.store.store import Store
from starburst.web.aggregates import overdue
from tests.store.samples import started, step, submission

pytestmark = pytest.mark.sqlite

WAITED = {"counts": [1] + [0] * 12, "sum_s": 0.5}


def test_counters_of_all_queues_in_one_document_are_split_when_an_older_store_is_opened(path: Path) -> None:
    path.parent.mkdir()
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = create_engine(f"sqlite:///{path}")
    documents = {
        "tallies": {
            "decisions": {"placed": 2},
            "waits": {"a": {"cluster": WAITED}, "b/c": {"cloud": WAITED}},
        },
        "spent": {"a": {"ada": 7}},
    }
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0012")
        rows = [{"key": key, "body": json.dumps(body)} for key, body in documents.items()]
        conn.execute(insert(facts), rows)
    engine.dispose()
    with Store.open(path) as store, store.read() as conn:
        assert counters.tallies(conn).decisions == {"placed": 2}
        histogram = WaitHistogram([1] + [0] * 12, 0.5)
        assert counters.waits(conn) == {"a": {"cluster": histogram}, "b/c": {"cloud": histogram}}
        assert counters.spent(conn) == {"a": {"ada": 7}}


def test_the_dashboard_sorts_no_queue(store: Store) -> None:
    asked: list[str] = []
    with store.read() as conn:
        plain = conn.execute

        def explained(statement, *args):  # type: ignore[no-untyped-def]
            compiled = statement.compile(dialect=conn.dialect, compile_kwargs={"literal_binds": True})
            asked.extend(row[3] for row in plain(text(f"EXPLAIN QUERY PLAN {compiled}")))
            return plain(statement, *args)

        conn.execute = explained  # type: ignore[method-assign]
        dashboard_queries.queued_jobs(conn, 50)
        overdue(conn, StarburstConfig(), 0.0)
        dashboard_queries.job_counts(conn)
    ones_in_it = "SCAN jobs USING COVERING INDEX ix_jobs_obstructed"
    plans = [plan for plan in asked if ("SCAN" in plan and plan != ones_in_it) or "ORDER BY" in plan]
    assert not plans, plans
    assert any("COVERING INDEX ix_jobs_phase_queue" in plan for plan in asked), asked
    assert ones_in_it in asked


def test_jobs_that_cannot_leave_are_counted_in_a_store_of_an_older_version(path: Path) -> None:
    with Store.open(path) as store:
        scheduler = started()
        kept = [submission(name, gpus=8, queue="big", max_wait_s=60.0) for name in ("kept", "confined")]
        store.commit(step(scheduler, submissions=kept))
        store.commit(step(scheduler, [LeaveRuled("confined", "may not")], 90.0))
        with store.read() as conn:
            assert overdue(conn, StarburstConfig(), 0.0) == {"big": 1}
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("DROP INDEX ix_jobs_obstructed")
        conn.execute("ALTER TABLE jobs DROP COLUMN obstructed")
        conn.execute("ALTER TABLE history DROP COLUMN estimate_s")
        conn.execute("UPDATE alembic_version SET version_num = '0018'")
        conn.commit()
    with Store.open(path) as store, store.read() as conn:
        assert overdue(conn, StarburstConfig(), 0.0) == {"big": 1}
