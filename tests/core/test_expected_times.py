"""Seconds until the times that are expected, summed."""

from __future__ import annotations

import random
from math import inf

from starburst.core.parts.expected_times import ExpectedTimes


def test_the_rest_shrinks_with_time_and_a_run_that_outlasts_its_estimate_has_none() -> None:
    runs = ExpectedTimes()
    runs.expect("a", 10)
    runs.expect("b", 4)
    runs.expect("unknown", inf)
    assert [runs.rest_s(now) for now in (0, 3, 4, 9, 10, 99)] == [14, 8, 6, 1, 0, 0]
    assert len(runs) == 3


def test_an_end_that_moves_counts_once_and_a_run_that_is_over_no_more() -> None:
    runs = ExpectedTimes()
    runs.expect("a", 10)
    runs.expect("a", 3)
    runs.expect("b", 5)
    runs.drop("b")
    runs.drop("never began")
    assert (list(runs), runs.rest_s(1), runs.rest_s(5)) == (["a"], 2, 0)
    runs.expect("a", 8)
    assert runs.rest_s(6) == 2


def test_the_order_in_which_runs_are_told_does_not_matter() -> None:
    """A restart tells them in another order, and has to decide alike."""
    draw = random.Random(1)
    ends = {str(n): draw.uniform(0, 1e6) / 3 for n in range(500)}
    sums = set()
    for _ in range(3):
        names = draw.sample(sorted(ends), len(ends))
        runs = ExpectedTimes()
        for name in names:
            runs.expect(name, ends[name])
        sums.add(runs.rest_s(1000 / 7))
    assert len(sums) == 1


def test_who_is_late_has_waited_since_it_was_expected() -> None:
    times = ExpectedTimes()
    times.expect("a", 10, since=4)
    times.expect("b", 20, since=5)
    assert [times.late_s(now) for now in (9, 10, 12, 20)] == [0, 6, 8, 16 + 15]
    times.drop("a")
    assert times.late_s(21) == 16
