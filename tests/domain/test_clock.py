"""A clock that runs at another pace than the wall's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.domain.clock import Pace

times = st.floats(0, 2e9)


def test_at_its_origin_it_agrees_with_the_wall_and_then_runs_ahead() -> None:
    pace = Pace(origin=1000.0, speed=60.0)
    assert pace.scheduler_time(1000.0) == 1000.0
    assert pace.scheduler_time(1001.0) == 1060.0


@given(times, times, st.floats(0.01, 10_000))
def test_wall_time_is_the_inverse_of_scheduler_time(origin: float, wall: float, speed: float) -> None:
    pace = Pace(origin, speed)
    assert pace.wall_time(pace.scheduler_time(wall)) == pytest.approx(wall, abs=1e-5)


@given(times)
def test_without_a_pace_both_clocks_are_one(wall: float) -> None:
    assert Pace().scheduler_time(wall) == wall
