"""How long machines are expected to take to come up: what was seen, from the closest to what is stated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starburst.domain.cloud import Offer
from starburst.policy.boot_times import ENOUGH, LONGEST_S, MAX_KEYS, NEWEST, SHORTEST_S, UNKNOWN_S, BootTimes
from tests.builders import offer

HERE = offer("aws/us-east-1/p3.8xlarge", cloud="aws", ready_s=100.0)
#: Of the same type in another region, zone and way of paying; and of another type.
SPOT = offer("aws/us-west-2/us-west-2b/p3.8xlarge/spot", cloud="aws", ready_s=100.0)
OTHER = offer("aws/us-east-1/c7i.large", cloud="aws", ready_s=70.0)
ELSEWHERE = offer("gcp/us-central1/a2-highgpu-1g", cloud="gcp", ready_s=75.0)


def seen(*seconds: float, of: Offer = HERE) -> BootTimes:
    """Boot times in which these were seen."""
    times = BootTimes()
    for each in seconds:
        times.observe(of, each)
    return times


def test_before_any_boot_the_offers_own_word_counts_and_else_three_minutes() -> None:
    times = BootTimes()
    assert times.expected_s(HERE) == 100.0
    assert times.expected_s(replace(HERE, ready_s=0.0)) == UNKNOWN_S == 180.0


def test_a_few_boots_are_needed() -> None:
    assert seen(*[400.0] * (ENOUGH - 1)).expected_s(HERE) == 100.0
    assert seen(*[400.0] * ENOUGH).expected_s(HERE) == 400.0


def test_one_launch_that_waited_for_an_hour_changes_nothing() -> None:
    assert seen(300.0, 3500.0, 310.0).expected_s(HERE) == 310.0


def test_the_newest_boots_count() -> None:
    assert seen(*[400.0] * 50, *[90.0] * (NEWEST // 2 + 1)).expected_s(HERE) == 90.0


def test_boots_of_a_type_tell_of_it_elsewhere_and_of_its_cloud_and_of_no_other_cloud() -> None:
    times = seen(300.0, 300.0, 300.0)
    assert [times.expected_s(each) for each in (SPOT, OTHER, ELSEWHERE)] == [300.0, 300.0, 75.0]
    for _ in range(ENOUGH):
        times.observe(OTHER, 60.0)
    assert [times.expected_s(each) for each in (HERE, SPOT, OTHER)] == [300.0, 300.0, 60.0]


def test_offers_without_a_cloud_have_nothing_in_common() -> None:
    assert seen(50.0, 50.0, 50.0, of=offer("small")).expected_s(offer("big")) == UNKNOWN_S


def test_several_machines_are_up_with_their_slowest_and_tell_nothing_of_one() -> None:
    times = seen(500.0, 500.0, 500.0, of=HERE.times(4))
    assert [times.expected_s(each) for each in (HERE.times(4), HERE, HERE.times(2))] == [500.0, 100.0, 100.0]
    assert seen(300.0, 300.0, 300.0).expected_s(HERE.times(4)) == 300.0, "before it was seen"


@pytest.mark.parametrize(
    ("told", "believed"), [(-5.0, SHORTEST_S), (0.0, SHORTEST_S), (1e9, LONGEST_S), (208.99999999997, 209.0)]
)
def test_what_a_clock_that_was_set_says_is_believed_within_bounds(told: float, believed: float) -> None:
    assert seen(told, told, told).expected_s(HERE) == believed


def test_they_outlive_a_restart_and_do_not_grow() -> None:
    times = BootTimes()
    for n in range(2 * MAX_KEYS):
        for _ in range(ENOUGH):
            times.observe(offer(f"o{n}"), 1.0 + n)
    again = BootTimes.restored(times.snapshot())
    assert len(times.snapshot()) == MAX_KEYS
    assert again.expected_s(offer(f"o{2 * MAX_KEYS - 1}")) == 2 * MAX_KEYS
    assert again.expected_s(offer("o0")) == UNKNOWN_S
