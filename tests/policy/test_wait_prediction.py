"""A wait is predicted from what ends, on which nodes, and from the jobs ahead."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.policy import wait_prediction
from starburst.policy.wait_prediction import Change, Need, Timeline

#: One node of 8, of which runs take seven.
ENDS = [(10.0, 0, 1), (60.0, 0, 2), (600.0, 0, 4)]


def one_node(free: int, ends: list[Change] = ENDS, *, passes: bool = True) -> Timeline:
    return Timeline([(8, free)], ends, passes=passes)


@pytest.mark.parametrize(
    ("size", "free", "wait_s"),
    [
        (1, 1, 0),  # it fits: only the order keeps it
        (1, 0, 10),
        (2, 0, 60),
        (4, 1, 60),
        (5, 1, 600),
        (99, 0, 600),  # no end frees that much: the last one is the best that is known
    ],
)
def test_a_job_waits_until_enough_has_ended(size: int, free: int, wait_s: float) -> None:
    assert one_node(free).start_s(Need(size)) == wait_s


def test_the_jobs_ahead_make_room_when_they_end() -> None:
    line = one_node(0)
    line.add(Need(3), 100)  # from 60 to 160
    assert line.start_s(Need(3)) == 160
    line.add(Need(3), 1000)  # to 1160; at 600 four more are free
    assert line.start_s(Need(4)) == 600
    line.add(Need(4), 10)
    assert line.start_s(Need(7)) == 1160


def test_a_small_job_passes_a_large_one_where_jobs_may_pass() -> None:
    for passes, start_s in ((True, 10), (False, 600)):
        line = one_node(0, passes=passes)
        line.add(Need(7), 100)
        assert line.start_s(Need(1)) == start_s


def test_who_has_passed_may_keep_a_large_job_waiting() -> None:
    """The job of 7 was to start at 600: the one that came after it has taken one of 8 until 710."""
    line = one_node(0, [*ENDS, (900.0, 0, 1)])
    line.add(Need(7), 100)
    line.add(Need(1), 700)
    assert line.start_s(Need(7)) == 710


def test_free_units_of_several_nodes_hold_no_large_task_but_those_of_a_gang() -> None:
    def line() -> Timeline:
        return Timeline([(8, 4), (8, 4)], [(50.0, 0, 4), (70.0, 1, 4)], passes=True)

    assert line().start_s(Need(8)) == 50
    assert line().start_s(Need(4, 2)) == 0
    assert line().start_s(Need(4, 3)) == 50
    assert line().start_s(Need(2, 4, spread=True)) == 70, "no more nodes come"
    assert line().start_s(Need(8, 2)) == 70


def test_a_small_job_takes_the_fullest_node() -> None:
    line = Timeline([(8, 8), (8, 2)], [], passes=True)
    line.add(Need(2), 100)
    assert line.start_s(Need(8)) == 0


def test_a_cluster_without_nodes_predicts_nothing() -> None:
    line = Timeline([], [], passes=True)
    assert line.start_s(Need(1)) == 0
    line.add(Need(1), 9)
    assert line.start_s(Need(1)) == 0


def test_behind_many_jobs_the_pace_of_the_nodes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_prediction, "ONE_BY_ONE", 4)
    line = Timeline([(4, 4)], [], passes=True)
    for _ in range(4):
        line.add(Need(1), 100)
    assert line.start_s(Need(1)) == 100
    for _ in range(4):
        line.add(Need(1), 100)
    assert line.start_s(Need(1)) == 200


def test_sizes_are_rounded_up_and_never_above_the_largest_node() -> None:
    line = Timeline([(64_000, 64_000)], [], passes=True)
    line.add(Need(1), 100)
    assert line.start_s(Need(63_001)) == 100, "1 counts as 1,000"
    assert Timeline([(64_000, 64_000)], [], passes=True).start_s(Need(63_001)) == 0


jobs = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 3), st.booleans(), st.integers(1, 90)), max_size=12
)
ends = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 2), st.integers(1, 4)), max_size=8)


@given(ends, jobs)
def test_jobs_of_one_need_keep_their_order_and_to_ask_changes_nothing(
    runs: list[tuple[int, int, int]], queue: list[tuple[int, int, bool, int]]
) -> None:
    taken = [sum(size for _, node, size in runs if node == at) for at in range(3)]
    nodes = [(8 + used, 8) for used in taken]
    changes = [(float(at), node, size) for at, node, size in runs]
    line = Timeline(nodes, changes, passes=True)
    last: dict[Need, float] = {}
    for size, tasks, spread, runtime in queue:
        need = Need(size, tasks, spread)
        start_s = line.start_s(need)
        assert last.get(need, 0.0) <= start_s < inf
        assert start_s == line.start_s(need)
        last[need] = start_s
        line.add(need, runtime)
