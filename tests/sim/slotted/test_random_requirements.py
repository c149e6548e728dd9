"""The published examples of who is stable where, on shorter runs than the page has."""

from __future__ import annotations

import numpy as np
import pytest

from sim.experiments.queues.random_requirements import (
    faster,
    load,
    made_up,
    published,
    stalling,
    two_sizes,
    uniform,
)
from sim.slotted.run import run
from sim.slotted.workload import SlottedWorkload, fixed
from starburst.policy.disciplines.discipline import Make
from starburst.policy.disciplines.partition import levels_for

SLOTS = 1_000_000


def test_vqs_is_unstable_where_best_fit_keeps_up() -> None:
    workload = two_sizes((4, 6), (0.5, 0.5), 0.014, SLOTS, geometric_service=True)
    left = waiting_at_the_end(workload, published(levels_for(4, 10)), "VQS", "BF-J/S", "VQS-BF")
    assert left["VQS"] > 300
    assert max(left["BF-J/S"], left["VQS-BF"]) < 50


def test_bf_js_is_unstable_where_vqs_keeps_up() -> None:
    workload = two_sizes((2, 5), (2 / 3, 1 / 3), 0.0306, SLOTS, geometric_service=False)
    left = waiting_at_the_end(workload, published(levels_for(2, 10)), "VQS", "BF-J/S")
    assert left["BF-J/S"] > 300
    assert left["VQS"] < 50


def waiting_at_the_end(workload: SlottedWorkload, tried: dict[str, Make], *names: str) -> dict[str, int]:
    return {name: int(run(workload, tried[name](1, 10), slots=SLOTS).queue[-1]) for name in names}


@pytest.mark.parametrize(
    ("name", "rounds"), [("BF-J/S", 200), ("VQS-BF", 200), ("VQS", 180), ("VQS-BF, stalling", 180)]
)
def test_best_fit_is_stuck_with_two_small_and_one_large_unless_it_stalls(name: str, rounds: int) -> None:
    # Two of 2 and one of 5 that end in different slots, then 400 and 200 more: 200 rounds of (2, 1), but
    # 80 rounds of five small and 100 of two large.
    arrival = np.array([0, 1, 2, *[3] * 600])
    size = np.array([5, 2, 2, *[2] * 400, *[5] * 200])
    workload = SlottedWorkload(arrival, size, fixed(100, 603), 10)
    make = {**published(3), **stalling(3)}[name]
    last = run(workload, make(1, 10), slots=30_000).started.max()
    assert last == pytest.approx(100 * rounds, abs=300)


def test_the_intensity_is_the_load_of_five_servers() -> None:
    workload, _ = uniform(0.1, 0.9, 0.9, 20_000)
    assert load(workload, 5) == pytest.approx(0.9, rel=0.03)


def test_made_up_tasks_are_as_many_and_as_much_work_as_asked_for() -> None:
    tasks = made_up(20_000, 20)
    assert len(tasks) == 20_000
    assert load(tasks, 20) == pytest.approx(0.6, rel=0.02)
    assert np.all(np.diff(tasks.arrival) >= 0)
    assert load(faster(tasks, 1.5), 20) == pytest.approx(0.9, rel=0.02)
