"""A user's estimate counts by what that user's past ones were worth."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.policy.estimate_accuracy import Accuracy

Pairs = list[tuple[float, float]]

#: Run time and estimate of past jobs, seconds.
pairs = st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e7)), max_size=50)


def after(past: Pairs) -> Accuracy:
    """The accuracy after these run times and estimates."""
    return reduce(lambda known, pair: known.after(*pair), past, Accuracy())


def test_a_user_of_whom_no_job_has_ended_is_believed() -> None:
    assert Accuracy().factor == 1


@pytest.mark.parametrize(("jobs", "factor"), [(1, 0.775), (10, 0.308), (5000, 0.104)])
def test_limits_ten_times_the_run_time_lose_their_weight_job_by_job(jobs: int, factor: float) -> None:
    """(n/10 + 3) / (n + 3); as older jobs fade, n is 666 at most."""
    assert after([(360.0, 3600.0)] * jobs).factor == pytest.approx(factor, abs=0.001)


def test_a_user_who_learns_to_estimate_is_believed_again() -> None:
    limits = after([(360.0, 3600.0)] * 1000)
    again = reduce(lambda known, _: known.after(3600.0, 3600.0), range(1000), limits)
    assert limits.factor < 0.12
    assert again.factor > 0.9


def test_one_long_job_that_ended_early_does_not_discredit_many_short_right_ones() -> None:
    """It is nearly all of what was estimated, but one job."""
    assert after([(60.0, 86400.0)]).factor == 0.75
    assert after([(60.0, 86400.0), *([(60.0, 60.0)] * 100)]).factor == pytest.approx(0.75, abs=0.02)


def test_a_long_job_counts_more_than_a_short_one() -> None:
    """Sums are compared: they are what a wait budget is reckoned with."""
    assert after([(10.0, 10.0), (100.0, 1000.0)]).factor < after([(1000.0, 1000.0), (1.0, 10.0)]).factor


@given(st.lists(st.floats(1, 1e7), max_size=50))
def test_right_estimates_count_exactly(runs_s: list[float]) -> None:
    """A measured run time differs from its estimate by the rounding of the clock."""
    assert after([((1e9 + run_s) - 1e9, run_s) for run_s in runs_s]).factor == 1


@given(pairs)
def test_no_estimate_is_lengthened_or_thrown_away(past: Pairs) -> None:
    assert 0 < after(past).factor <= 1


@given(pairs, st.floats(1, 1e7))
def test_one_more_job_of_the_mean_size_that_ran_for_as_long_as_was_said_raises_it(
    past: Pairs, run_s: float
) -> None:
    known = after([(0.1 * run_s, run_s), *((min(pair), run_s) for pair in past)])
    assert known.after(run_s, run_s).factor >= known.factor


@given(pairs, st.floats(0, 1e7), st.floats(0, 1e7))
def test_a_limit_is_never_exceeded(past: Pairs, limit_s: float, mean_s: float) -> None:
    assert 0 <= after(past).of_limit_s(limit_s, mean_s) <= limit_s


def test_of_a_limit_counts_the_part_that_past_jobs_of_the_user_ran_for() -> None:
    """(n/10 · 8 h + 3 · 1 h) / (n + 3); at first the mean of past jobs of that size, at most the limit."""
    expected_h = [after([(360.0, 3600.0)] * jobs).of_limit_s(8.0, 1.0) for jobs in (0, 1, 10, 5000)]
    assert expected_h == pytest.approx([1.0, 0.95, 0.846, 0.801], abs=0.002)
    assert Accuracy().of_limit_s(0.5, 1.0) == 0.5
