"""The points of the slider are what the scheduler's own core makes of the finished jobs."""

from __future__ import annotations

from pathlib import Path

from starburst.store.listings import queries
from starburst.web.dashboard.budgets import BudgetReplayCache, budgets
from tests.web.lively import Lively


def test_a_point_for_each_p_and_for_the_present_one_of_the_same_finished_jobs(tmp_path: Path) -> None:
    with Lively.begin(tmp_path, budget_percent=30) as lively:
        lively.morning(60)
        store = lively.app_context.store
        found = budgets(store, (0.0, 100.0))
        finished = queries.jobs(store, phases=("succeeded", "failed"))
        assert (found.jobs, found.present, found.is_small) == (len(finished), 30, True)
        assert (found.first_at, found.last_at) == (finished[0].submitted_at, finished[-1].submitted_at)
        never, present, most = found.points
        assert [point.percent for point in found.points] == [0, 30, 100]
        assert never.cost_usd > present.cost_usd >= most.cost_usd, "who waits pays less"
        assert (never.saved_percent, never.longer_percent) == (0, 0)
        assert never.wait_h <= present.wait_h <= most.wait_h
        assert 0 < present.longer_percent <= 30, "P is kept"


def test_without_a_budget_or_a_past_there_are_no_points(tmp_path: Path) -> None:
    with Lively.begin(tmp_path / "a") as lively:
        assert budgets(lively.app_context.store).problem == "no job has finished yet"
    with Lively.begin(tmp_path / "b", waiting="infinite") as lively:
        assert "infinite has no budget P" in budgets(lively.app_context.store).problem


def test_it_is_computed_once_for_all_who_look(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        cache = BudgetReplayCache(lively.app_context.store)
        first = cache.ask(1.0, wait_s=60.0)
        assert first is not None
        assert cache.ask(2.0, wait_s=60.0) is first, "another one began before the pause was over"
