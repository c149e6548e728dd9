"""Records as they were stored before waits had types (schema 0004) are read after the migration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, insert, select, text

from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import LeaveReason, NoOffer, OverBudget, StopReason, Wait
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.engine import MIGRATIONS, open_engine

pytestmark = pytest.mark.sqlite

#: Written by the code of schema 0004, one record of each kind.
OLD: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "records_0004.json").read_text())
WAIT = Wait("1 GPU", 3600.0, "Constant-Wait: C 1 h", 3600.0, "mean of past jobs")


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobRecord]:
    """The old records, by name, out of a store of that time that was opened with today's code."""
    path = tmp_path_factory.mktemp("old") / "starburst.db"
    _store_of_0004(path)
    engine = open_engine(path)
    with engine.connect() as conn:
        rows = conn.execute(select(t.jobs.c.id, t.jobs.c.record)).all()
    engine.dispose()
    return {name: codec.decode(JobRecord, record) for name, record in rows}


def _store_of_0004(path: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0004")
        columns = {row[1] for row in conn.execute(text("PRAGMA table_info(jobs)"))}
        blank = {name: "" for name in columns if name in t.jobs.c and not t.jobs.c[name].nullable}
        for name, record in OLD.items():
            row = {**blank, "id": name, "seq": 1, "submitted_at": 0.0, "attempt": 0, "cloud_micro_usd": 0}
            conn.execute(insert(t.jobs), {**row, "open_bills": 0, "record": json.dumps(record)})
    engine.dispose()


def test_every_old_record_is_read(migrated: dict[str, JobRecord]) -> None:
    assert migrated.keys() == OLD.keys()
    for name, record in migrated.items():
        again = json.loads(codec.encode(record))
        changed = {"wait", "obstacle", "stop_why", "leaving"}
        same = {key: value for key, value in OLD[name].items() if key not in changed}
        assert _of_then(again, same) == same


def _of_then(now: Any, then: Any) -> Any:
    """What is stored now, without the fields that came later."""
    if isinstance(then, dict):
        return {key: _of_then(now[key], value) for key, value in then.items()}
    if isinstance(then, list):
        return [_of_then(*pair) for pair in zip(now, then, strict=True)]
    return now


def test_the_numbers_of_a_wait_are_typed(migrated: dict[str, JobRecord]) -> None:
    assert (migrated["waits"].wait, migrated["waits"].obstacle) == (WAIT, None)
    assert migrated["held"].wait is None
    assert migrated["cloud"].wait is None


def test_what_a_job_lacks_in_the_cloud_is_its_obstacle(migrated: dict[str, JobRecord]) -> None:
    nothing = NoOffer("the cloud has no offers")
    assert migrated["no-offer"].obstacle == migrated["no-offer-unwaited"].obstacle == nothing
    text_of = OLD["over-budget"]["wait"]["lacks"]
    assert migrated["over-budget"].obstacle == OverBudget("cap/day", 86400.0, 3050000.0, text_of)
    unknown = migrated["over-budget-unknown"].obstacle
    assert isinstance(unknown, OverBudget)
    assert unknown.cost == float("inf")


def test_reasons_are_members_of_their_enums_or_none(migrated: dict[str, JobRecord]) -> None:
    assert migrated["stopping"].stop_why is StopReason.CANCEL
    assert migrated["running"].stop_why is None
    assert migrated["departing"].leaving is LeaveReason.ONLY
    assert migrated["offloading"].leaving is None
