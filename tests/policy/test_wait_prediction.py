"""A wait is predicted from what ends, in order, and from the jobs ahead."""

from __future__ import annotations

import pytest

from starburst.policy.wait_prediction import Line

ENDS = [(0.0, 1.0), (60.0, 2.0), (600.0, 4.0)]


@pytest.mark.parametrize(
    ("need", "free", "wait_s"),
    [
        (1, 1, 0),  # it fits: only the order or the nodes keep it
        (1, 0, 0),
        (2, 0, 60),
        (4, 1, 60),
        (5, 1, 600),
        (99, 0, 600),  # no end frees that much: the last one is the best that is known
    ],
)
def test_a_job_waits_until_enough_has_ended(need: float, free: float, wait_s: float) -> None:
    assert Line(free, ENDS).wait_s(need) == wait_s


def test_the_jobs_ahead_start_first_and_make_room_when_they_end() -> None:
    line = Line(0, ENDS)
    line.add(3, 100)  # from 60 to 160
    assert line.wait_s(3) == 160
    line.add(3, 1000)  # to 1160; at 600 four more are free
    assert line.wait_s(4) == 600
    line.add(4, 10)
    assert line.wait_s(7) == 1160


def test_no_job_passes_another() -> None:
    line = Line(1, [(50.0, 3.0)])
    line.add(4, 10)
    assert line.wait_s(1) == 60


def test_a_cluster_without_nodes_predicts_nothing() -> None:
    assert Line(0, []).wait_s(1) == 0
