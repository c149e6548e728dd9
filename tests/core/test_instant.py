"""The order of things at one instant, and the order of the queue."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.core.model.events import CancelRequested, JobSubmitted
from tests.builders import HOUR, Desk, job, launches, starts


def full(**settings: Any) -> Desk:
    """One node of 4 GPUs, all in use by "busy"."""
    desk = Desk(4, **settings)
    desk.submit(job("busy", 4, hours=1))
    desk.started("busy")
    return desk


def test_a_wait_that_expires_just_as_room_is_freed_still_leaves() -> None:
    desk = full()
    desk.submit(job("a", 4))
    desk.now = HOUR
    desk.ended("busy")
    assert desk.phase("a") == "offloading"


def test_room_freed_at_an_instant_is_there_for_its_arrivals() -> None:
    desk = full()
    desk.submit(job("waits", 4, max_wait_s=HOUR))
    desk.now = HOUR
    actions = desk.tell(JobSubmitted(job("comes", 4)), desk.end_of("busy"))
    assert starts(actions) == ["comes"], "the end is handled first, in whatever order they are told"
    assert desk.phase("waits") == "offloading", "its wait expired before the arrival joined"


def test_no_wait_gets_exactly_one_attempt_at_the_cluster() -> None:
    desk = full(waiting="no-wait")
    desk.submit(job("a"))
    assert desk.phase("a") == "offloading"
    desk.ended("busy")
    desk.submit(job("b"))
    assert desk.phase("b") == "starting"


def test_the_walk_comes_before_the_queue_limit() -> None:
    desk = Desk(4, queue_limit=1)
    desk.submit(job("fits", 4), job("stays"), job("leaves"))
    assert [desk.phase(name) for name in ("fits", "stays", "leaves")] == ["starting", "queued", "offloading"]


def test_a_cancel_that_comes_with_its_submission_counts() -> None:
    desk = full()
    desk.tell(CancelRequested("a"), JobSubmitted(job("a")))
    assert desk.phase("a") == "cancelled"


def test_a_run_lost_at_the_very_end_of_its_wait_gets_one_more_attempt_at_the_cluster() -> None:
    desk = Desk(4, waiting="constant", factor=HOUR)
    desk.submit(job("a", 4))
    desk.started("a")
    desk.now = HOUR
    assert starts(desk.lost("a")) == ["a"]


def test_strict_order_stops_at_the_first_that_does_not_fit() -> None:
    desk = Desk(4, out_of_order=False)
    desk.submit(job("a", 3), job("b", 2), job("c", 1))
    assert starts(desk.actions) == ["a"]
    assert [desk.phase(name) for name in "bc"] == ["queued", "queued"]


def test_out_of_order_later_jobs_pass_what_does_not_fit() -> None:
    desk = Desk(4)
    desk.submit(job("a", 3), job("b", 2), job("c", 1))
    assert starts(desk.actions) == ["a", "c"]
    assert desk["c"].passed
    assert not desk["a"].passed
    assert desk.why("c", "placed").endswith("passed b, which does not fit yet")


def test_of_two_shapes_that_are_behind_the_one_in_front_is_named() -> None:
    desk = full()
    desk.submit(job("b", 3), job("c", 2), job("d", 1))
    desk.cancel("busy")
    desk.stopped("busy")
    assert [desk["b"].passed, desk["d"].passed] == [False, True]
    assert desk.log("d", "placed")[0].numbers["passed"] == "c"


@pytest.mark.parametrize(
    ("order", "sequence"),
    [
        ("fifo", ["slow", "quick", "vip"]),
        ("sjf", ["quick", "vip", "slow"]),
        ("edf", ["vip", "slow", "quick"]),
        ("priority", ["vip", "slow", "quick"]),
    ],
)
def test_the_order_says_who_goes_first(order: str, sequence: list[str]) -> None:
    desk = full(order=order)
    desk.submit(
        job("slow", 1, hours=3, max_wait_s=200),
        job("quick", 1, hours=1, max_wait_s=3 * HOUR),
        job("vip", 1, hours=2, max_wait_s=100, priority=5),
    )
    assert starts(desk.ended("busy")) == sequence


@pytest.mark.parametrize("order", ["sjf", "edf", "priority"])
def test_ties_go_to_whoever_came_first(order: str) -> None:
    desk = full(order=order)
    desk.submit(*(job(name, 1, hours=1) for name in ("d", "b", "a", "c")))
    assert starts(desk.ended("busy")) == ["d", "b", "a", "c"]


def test_time_alone_wakes_the_scheduler_when_the_next_wait_expires() -> None:
    desk = full()
    desk.submit(job("a", 1, max_wait_s=100), job("b", 1, max_wait_s=50))
    assert desk.scheduler.next_wakeup() == 50
    assert launches(desk.wait(50)) == ["small"]
    desk.cancel("a")
    assert desk.scheduler.next_wakeup() == float("inf")
