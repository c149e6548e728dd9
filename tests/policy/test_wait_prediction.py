"""A wait is predicted from what ends, in order, and from the work ahead."""

from __future__ import annotations

import pytest

from starburst.policy.wait_prediction import predicted_wait_s

ENDS = [(-5.0, 1.0), (60.0, 2.0), (600.0, 4.0)]


@pytest.mark.parametrize(
    ("need", "free", "ahead_s", "wait_s"),
    [
        (1, 1, 0, 0),  # it fits: only the order or the nodes keep it
        (1, 0, 0, 0),  # a run past its expected end may end at any time
        (2, 0, 0, 60),
        (4, 1, 0, 60),
        (5, 1, 0, 600),
        (99, 0, 0, 600),  # no end frees that much: the last one is the best that is known
        (2, 0, 700, 160),  # 700 GPU seconds ahead, on seven GPUs
    ],
)
def test_the_wait_is_that_for_room_and_that_for_the_jobs_ahead(
    need: float, free: float, ahead_s: float, wait_s: float
) -> None:
    assert predicted_wait_s(need, free, ENDS, ahead_s, 7) == wait_s


def test_a_cluster_without_nodes_predicts_nothing() -> None:
    assert predicted_wait_s(1, 0, [], 100, 0) == 0
