"""What it costs that an image is not on a machine."""

from __future__ import annotations

from starburst.domain.money import Money
from starburst.policy.image_pulls import LONGEST_S, MAX_IMAGES, UNKNOWN_S, PullTimes, pull_cost


def test_an_image_that_was_never_pulled_takes_the_assumed_time() -> None:
    assert PullTimes().expected_s("a:1") == UNKNOWN_S


def test_the_newest_pull_counts_for_half() -> None:
    times = PullTimes()
    for seconds in (40.0, 80.0, 20.0):
        times.observe("a:1", seconds)
    assert times.expected_s("a:1") == 40.0
    assert times.expected_s("b:1") == UNKNOWN_S


def test_a_machine_that_lies_about_a_pull_is_believed_within_bounds() -> None:
    times = PullTimes()
    times.observe("a:1", 1e9)
    times.observe("b:1", -5.0)
    assert (times.expected_s("a:1"), times.expected_s("b:1")) == (LONGEST_S, 0.0)


def test_of_too_many_images_the_one_pulled_least_recently_is_dropped() -> None:
    times = PullTimes()
    for number in range(MAX_IMAGES):
        times.observe(f"i:{number}", 1.0)
    times.observe("i:0", 1.0)
    times.observe("new:1", 1.0)
    assert len(times.snapshot()) == MAX_IMAGES
    assert times.expected_s("i:1") == UNKNOWN_S
    assert PullTimes.restored(times.snapshot()).expected_s("i:0") == 1.0


def test_the_job_pays_its_share_of_the_machine_while_it_pulls() -> None:
    assert pull_cost(120.0, Money.of(12), 0.25) == Money.of("0.10")
    assert pull_cost(0.0, Money.of(12), 1.0) == Money()
