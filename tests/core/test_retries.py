"""A command that failed is run again, after pauses that grow, at most so often."""

from __future__ import annotations

import pytest

from starburst.core.model.events import RunEnd
from starburst.core.views.explain import explain
from starburst.core.views.snapshot import restore
from starburst.policy.backoff import pause_s
from tests.builders import HOUR, Desk, job, launches, returns, snapshot, starts


def test_pauses_are_those_of_kubernetes() -> None:
    assert [pause_s(n) for n in (1, 2, 3, 6, 7, 1000)] == [10, 20, 40, 320, 360, 360]


def test_it_pauses_then_queues_anew_and_fails_at_last() -> None:
    desk = Desk(1)
    desk.submit(job("a", retries=2))
    for number, pause in ((2, 10), (3, 20)):
        desk.started("a")
        assert not desk.ended("a", code=3)
        assert (desk.phase("a"), desk.free()) == ("blocked", 1)
        assert desk.why("a", "retries") == f"fails (exit 3); try {number} of 3 in {pause} s"
        assert not desk.wait(pause - 1)
        assert starts(desk.wait(1)) == ["a"]
    desk.started("a")
    desk.ended("a", code=4)
    assert (desk.phase("a"), desk["a"].attempt) == ("failed", 3)
    assert desk.why("a", "failed") == "its command ended with exit code 4"


def test_its_pause_is_no_wait() -> None:
    desk = Desk(1)
    desk.submit(job("a", retries=1))
    desk.wait(2 * HOUR)
    desk.ended("a", code=1)
    desk.submit(job("b"))
    assert not desk.wait(10)
    assert (desk.phase("a"), desk["a"].deadline) == ("queued", 3 * HOUR + 10)


def test_a_run_in_the_cloud_gives_its_machine_back_before_the_pause() -> None:
    desk = Desk()
    desk.submit(job("a", cloud="only", retries=1))
    desk.offload("a")
    assert returns(desk.ended("a", code=1)) == ["i-000001"]
    assert launches(desk.wait(10)) == ["small"]


@pytest.mark.parametrize("end", [RunEnd.REFUSED, RunEnd.OUT_OF_TIME])
def test_what_would_end_the_same_way_is_not_run_again(end: RunEnd) -> None:
    desk = Desk(1)
    desk.submit(job("a", retries=5))
    desk.ended("a", end, 124)
    assert desk.phase("a") == "failed"


def test_a_job_that_was_cancelled_is_not_run_again() -> None:
    desk = Desk(1)
    desk.submit(job("a", retries=5), job("b", retries=5))
    desk.cancel("a")
    desk.ended("a", code=143)
    assert desk.phase("a") == "failed"
    desk.ended("b", code=1)
    desk.cancel("b")
    assert desk.phase("b") == "cancelled"
    assert not desk.wait(HOUR)


def test_lost_runs_are_not_tries() -> None:
    desk = Desk(1)
    desk.submit(job("a", retries=1))
    desk.lost("a")
    desk.ended("a", code=1)
    assert desk.why("a", "retries") == "fails (exit 1); try 2 of 2 in 10 s"


def test_one_that_pauses_can_be_held_and_pauses_on_when_it_is_released_too_soon() -> None:
    desk = Desk(1)
    desk.submit(job("a", retries=1))
    desk.ended("a", code=1)
    desk.hold("a")
    desk.wait(4)
    assert not desk.release("a")
    assert desk.phase("a") == "blocked"
    assert starts(desk.wait(6)) == ["a"]


def test_explain_says_until_when_and_a_restart_knows_too() -> None:
    desk = Desk(1)
    desk.submit(job("a", retries=3))
    desk.ended("a", code=1)
    sentence = explain(desk.scheduler.state, desk["a"], lambda at: f"{at:g}").sentence
    assert sentence == "pauses before try 2 of 4, as its last run failed; until 10"
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert again.next_wakeup() == 10
    assert starts(again.handle([], 10.0)) == ["a"]
