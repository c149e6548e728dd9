"""How much longer jobs of each size wait than was predicted, learnt from their waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.policy.forecast_bias import (
    KEEP,
    PRIOR_JOBS,
    PUNCTUAL,
    WORST,
    ForetoldWait,
    Lateness,
    after,
    bias,
    size_class,
)

HOUR = 3600.0

waits = st.builds(ForetoldWait, st.integers(0, 64), st.floats(0, 1e6), st.floats(0, 1e6))


def test_the_classes_are_powers_of_two() -> None:
    assert [size_class(gpus) for gpus in (0, 1, 2, 3, 4, 7, 8, 15, 16, 512)] == [0, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_jobs_that_wait_three_times_as_long_as_predicted_stretch_the_predictions_of_their_size_only() -> None:
    sums = after(PUNCTUAL, [ForetoldWait(16, HOUR, 3 * HOUR)] * 100 + [ForetoldWait(1, HOUR, HOUR)] * 100)
    assert bias(sums[size_class(64)], HOUR) == pytest.approx(1 + 200 / (100 + PRIOR_JOBS))
    assert bias(sums[size_class(1)], HOUR) == bias(sums[size_class(8)], HOUR) == 1


def test_one_late_job_is_no_evidence() -> None:
    (sums,) = after((Lateness(),), [ForetoldWait(0, 0, HOUR)])
    assert bias(sums, HOUR) == 1 + 1 / PRIOR_JOBS


def test_what_a_job_did_not_wait_of_its_prediction_makes_no_other_one_punctual() -> None:
    """It may have left before; its wait is not known then."""
    early = after(PUNCTUAL, [ForetoldWait(1, 9 * HOUR, HOUR)])
    assert early == after(PUNCTUAL, [ForetoldWait(1, HOUR, HOUR)])


def test_older_waits_fade() -> None:
    late = after(PUNCTUAL, [ForetoldWait(1, HOUR, 4 * HOUR)] * 500, KEEP)
    assert bias(late[1], HOUR) > 3.9
    since = after(late, [ForetoldWait(1, HOUR, HOUR)] * 5000, KEEP)
    assert bias(since[1], HOUR) < 1.02


@given(st.lists(waits, max_size=30), st.sampled_from([1.0, KEEP]))
def test_it_is_never_below_one_nor_above_the_worst(some: list[ForetoldWait], keep: float) -> None:
    for sums in after(PUNCTUAL, some, keep):
        assert 1 <= bias(sums, HOUR) <= WORST
