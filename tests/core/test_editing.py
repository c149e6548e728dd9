"""A job that waits is changed: its priority, its wait, its estimate."""

from __future__ import annotations

from starburst.core.model.events import RunEnd
from starburst.core.views.restoring import restore
from tests.builders import HOUR, Desk, job, launches, snapshot, starts


def test_a_higher_priority_goes_first() -> None:
    desk = Desk(1, order="priority")
    desk.submit(job("busy"), job("a"), job("b"))
    desk.edit("b", priority=5)
    assert desk.why("b", "edited") == "its user changed it: priority 5"
    assert desk["b"].deadline == HOUR, "its wait is as it was"
    assert starts(desk.ended("busy")) == ["b"]


def test_the_time_that_it_has_waited_counts() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a"))
    desk.wait(HOUR / 2)
    assert not desk.edit("a", max_wait_s=2 * HOUR)
    assert (desk["a"].queued_at, desk["a"].deadline) == (0, 2 * HOUR)
    assert launches(desk.edit("a", max_wait_s=60)) == ["small"]


def test_an_estimate_sets_the_wait_of_a_policy_anew() -> None:
    desk = Desk(1, waiting="runtime", factor=0.5)
    desk.submit(job("busy"), job("a", hours=2))
    assert desk["a"].deadline == HOUR
    desk.edit("a", runtime_estimate_s=8 * HOUR)
    assert desk["a"].deadline == 4 * HOUR
    assert desk["a"].wait.estimated_by == "user"


def test_what_pauses_after_a_refused_start_is_changed_and_the_time_that_it_has_waited_counts() -> None:
    desk = Desk(4)
    desk.submit(job("busy", 4), job("a", 4))
    desk.wait(HOUR / 2)
    desk.ended("busy")
    desk.ended("a", RunEnd.NOT_STARTED)
    desk.edit("a", max_wait_s=HOUR / 2 + 5)
    assert (desk.phase("a"), desk["a"].deadline) == ("blocked", HOUR / 2 + 5)
    assert launches(desk.wait(5)) == ["small"]
    assert desk.phase("a") == "offloading"


def test_in_the_cloud_a_change_does_not_end_the_pause_after_a_refused_start() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a", max_wait_s=0.0))
    desk.ready("i-000001")
    desk.ended("a", RunEnd.NOT_STARTED)
    assert not launches(desk.edit("a", max_wait_s=1.0))
    assert desk["a"].deadline == desk["a"].not_before == 10
    assert launches(desk.wait(10)) == ["small"]


def test_what_is_held_is_changed_and_stays_held() -> None:
    desk = Desk(4)
    desk.submit(job("a", hold=True))
    assert not desk.edit("a", max_wait_s=60)
    assert desk.phase("a") == "held"
    desk.release("a")
    assert desk["a"].wait.wait_s == 60


def test_what_runs_stays_as_it_is() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.edit("a", priority=5)
    assert desk["a"].job.priority == 0
    assert desk.why("a", "not-edited") == (
        "could not be changed any more: it was starting when that was asked for"
    )


def test_one_that_waits_for_an_offer_asks_again_and_a_restart_changes_nothing() -> None:
    desk = Desk(1, offers=[])
    desk.submit(job("busy"), job("a"))
    desk.wait(2 * HOUR)
    assert desk["a"].deadline == float("inf")
    assert not desk.edit("a", priority=1, max_wait_s=3 * HOUR)
    state = desk.scheduler.state
    again = restore(state.settings, snapshot(desk.scheduler)).state.jobs["a"]
    assert again.job == desk["a"].job
    assert again.deadline == desk["a"].deadline == 3 * HOUR
