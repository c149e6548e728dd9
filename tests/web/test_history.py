"""The charts over a day are what the store says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.domain.job import CloudChoice, Member
from starburst.store.listings import dashboard_queries as board
from starburst.store.listings import queries
from starburst.web.dashboard.history import POINTS, history, levels
from tests.cli.past import NOON, Past
from tests.web.lively import Lively


def test_a_level_is_the_sum_of_the_spans_over_a_time() -> None:
    assert levels([(0, 10, 1), (5, 10, 2), (10, 20, 4)], [-1, 0, 5, 10, 20]) == (0, 1, 3, 4, 0)


def test_a_morning_ends_with_what_waits_runs_and_was_spent(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        lively.morning(40)
        context = lively.app_context
        now = context.now()
        spent, cluster, cloud, waiting, longer = history(context.store, now, 500.0, 0.25).charts
        assert all(len(chart.values) == POINTS for chart in (spent, cluster, cloud, waiting, longer))
        machines = queries.instance_records(context.store, include_ended=True)
        assert spent.values[-1] == pytest.approx(sum(one.cost(now).micro_usd for one in machines) / 1e6)
        assert list(spent.values) == sorted(spent.values)
        rows = queries.jobs(context.store)
        assert waiting.values[-1] == sum(row.started_at is None and row.ended_at is None for row in rows)
        with context.store.read() as conn:
            busy = [slot.resources.gpus for job in board.placed_jobs(conn) for slot in board.on_cluster(job)]
        assert cluster.values[-1] == sum(busy)
        assert cluster.level == sum(node.capacity.gpus for node in lively.scheduler.state.capacity.nodes)
        assert (spent.level, longer.level) == (500.0, 25.0)


def test_a_machine_of_this_moment_leaves_the_chart_as_it_is(past: Past) -> None:
    past.submit("train-77777", cloud=CloudChoice.ONLY)
    past.ready("i-000003")
    machines = queries.instance_records(past.store, include_ended=True)
    (now,) = (machine.launched_at for machine in machines if machine.id == "i-000003")
    assert now is not None
    spent = history(past.store, now, 500.0, 0.25).charts[0]
    assert spent.values[-1] == pytest.approx(sum(one.cost(now).micro_usd for one in machines) / 1e6)


def test_a_job_that_waits_for_its_turn_in_an_array_does_not_wait_for_a_place(tmp_path: Path) -> None:
    with Past.begin(tmp_path / "home" / "starburst.db", NOON) as past:
        for n in range(3):
            past.submit(f"sweep-b2c3d-{n}", 4, name=f"sweep-{n}", array=Member("sweep-b2c3d", n, 3, 1))
        for n in range(3):
            past.start(f"sweep-b2c3d-{n}")
            past.now += 3600
            past.end(f"sweep-b2c3d-{n}")
        longer = history(past.store, past.now + 1, None, 0.25).charts[4]
    assert max(longer.values) == 0
