"""What ended long ago becomes a row of history, and nothing that is asked of it changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from starburst.core.model.events import CancelRequested
from starburst.core.model.settings import Settings
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from starburst.domain.money import Money
from starburst.policy.caps import Cap
from starburst.store import counters
from starburst.store import schema as t
from starburst.store.errors import DuplicateJobError, JobNotFoundError
from starburst.store.listings import queries
from starburst.store.listings.costs import CostSplit, costs, settled_since
from starburst.store.listings.dashboard_queries import ended_since
from starburst.store.store import Store
from starburst.store.upkeep import rollup
from starburst.store.upkeep.copying import counts
from starburst.store.upkeep.rollup import INSTANCE_S, roll_up
from tests.cli.past import NOON, Past
from tests.store.samples import submission

#: What ended two hours before noon is older, what began an hour before noon is not.
LIMIT = NOON - 1.5 * 3600
CAP = Cap("all", Money.of(100), "month")


@pytest.fixture
def past(path: Path) -> Iterator[Past]:
    with Past.begin(path, NOON) as begun:
        begun.store.set_fact("config", {"cluster": {"usd_per_gpu_hour": 1}})
        begun.morning()
        yield begun


def old(store: Store, before: float = LIMIT) -> int:
    return sum(roll_up(store, before, NOON))


def told(store: Store) -> list[object]:
    """What is asked of ended jobs."""
    with store.read() as conn:
        metrics = [counters.tallies(conn), counters.waits(conn), counters.spent(conn)]
        metrics.append(ended_since(conn, NOON - 12 * 3600))
    bills = [costs(store, split.value, NOON) for split in CostSplit]
    ended = queries.ended(store, ["done-11111", "bad-22222", "wait-55555", "never"])
    return [*metrics, bills, sorted(ended), queries.past_jobs(store), settled_since(store, CAP, 0.0)]


def test_the_estimates_of_past_jobs_are_kept(path: Path) -> None:
    with Past.begin(path, NOON - 5 * 3600) as past:
        past.submit("told-1", runtime_estimate_s=7200.0)
        past.start("told-1")
        past.now += 3600
        past.end("told-1")
        past.submit("mute-2")
        past.start("mute-2")
        past.now += 3600
        past.end("mute-2")
        for _ in range(2):
            found = {job.id: job.estimate_s for job in queries.past_jobs(past.store)}
            assert found == {"told-1": 7200.0, "mute-2": None}
            old(past.store)
        assert queries.jobs(past.store) == []


def test_bills_past_jobs_metrics_and_prerequisites_are_as_before(past: Past) -> None:
    before, live = told(past.store), past.store.snapshot()
    assert old(past.store) > 0
    assert told(past.store) == before
    assert past.store.snapshot() == live
    validate(restore(Settings(), past.store.snapshot()).state)
    assert old(past.store, NOON + INSTANCE_S) > 0  # the bills of instances, too
    assert told(past.store)[:6] == before[:6]


def test_only_jobs_that_ended_and_are_paid_go_and_their_decisions_with_them(past: Past) -> None:
    old(past.store)
    assert [row.id for row in queries.jobs(past.store)] == ["render-33333", "train-44444", "wait-55555"]
    subjects = {row.subject for row in queries.decisions(past.store)}
    assert subjects == {"render-33333", "train-44444", "wait-55555", "i-000002"}
    with pytest.raises(JobNotFoundError, match=r"'done-11111' has succeeded longer ago than home\.keep"):
        queries.job(past.store, "done-11111")
    assert all(row.at >= LIMIT for row in queries.events(past.store))
    old(past.store, NOON + 1)
    assert {"render-33333", "train-44444"} <= {row.subject for row in queries.decisions(past.store)}


def test_decisions_about_an_instance_go_with_the_jobs_and_its_bill_stays(past: Past) -> None:
    with past.store.read() as conn:
        (ended,) = (it for it in queries.machines(conn, include_ended=True) if it.ended_at is not None)
        assert queries.machine(conn, ended.id) == ended
        assert queries.machine(conn, "nobody") is None
        assert ended in queries.machines(conn, ended_after=ended.ended_at - 1)
        assert ended not in queries.machines(conn, ended_after=ended.ended_at)
        assert queries.machines(conn, ended_after=ended.ended_at) == queries.machines(conn)
    old(past.store, ended.ended_at)
    assert queries.decisions(past.store, ended.id) != []
    old(past.store, ended.ended_at + 1)
    assert queries.decisions(past.store, ended.id) == []
    with past.store.read() as conn:
        assert queries.machine(conn, ended.id) == ended
        live = [it.id for it in queries.machines(conn)]
    assert all(queries.decisions(past.store, name) for name in live)


def test_a_job_that_never_ran_is_as_old_as_its_last_decision(past: Past) -> None:
    past.now = NOON + 1800
    past.tell(CancelRequested("wait-55555"))
    old(past.store, NOON + 1000)
    assert "wait-55555" in {row.id for row in queries.jobs(past.store)}
    old(past.store, NOON + 2000)
    assert "wait-55555" not in {row.id for row in queries.jobs(past.store)}


def test_an_id_is_never_given_to_another_job(past: Past) -> None:
    old(past.store)
    with pytest.raises(DuplicateJobError, match="done-11111"):
        past.store.submit([submission("done-11111")], 1.0)


def test_a_pass_that_is_cut_off_anywhere_is_gone_on_with(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "JOBS", 1)
    monkeypatch.setattr(rollup, "ROWS", 2)
    before = told(past.store)
    for steps in range(1, 30):
        cut_off = roll_up(past.store, LIMIT, NOON)
        for _ in range(steps % 5):
            next(cut_off, None)
        assert told(past.store) == before
    old(past.store)
    rows = rows_of(past.store)
    assert old(past.store) == 0
    assert rows_of(past.store) == rows


def rows_of(store: Store) -> dict[str, int]:
    with store.read() as conn:
        return counts(conn)


def test_a_year_of_jobs_leaves_short_rows(past: Past) -> None:
    for number in range(60):
        past.submit(f"many-{number:05}", hold=True)
        past.tell(CancelRequested(f"many-{number:05}"))
    old(past.store, NOON + 1)
    rows = rows_of(past.store)
    assert rows["history"] == 62
    assert rows["decisions"] < 30
    assert rows["events"] == 0
    with past.store.read() as conn:
        row = conn.execute(select(t.history).where(t.history.c.id == "many-00000")).one()
    assert sum(8 if isinstance(value, (int, float)) else len(value or "") for value in row) < 120
