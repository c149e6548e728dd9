"""The slotted model: its order of events, its averages, and jobs kept."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.slotted.run import run
from sim.slotted.workload import SlottedWorkload, fixed, geometric, poisson
from starburst.policy.disciplines.fifo import FifoFirstFit
from tests.policy.disciplines.drive import DISCIPLINES, History, histories, slots


def workload(*jobs: tuple[int, int, int], capacity: int = 10) -> SlottedWorkload:
    """Jobs as (arrival, size, service)."""
    columns = np.array(jobs, dtype=np.int64).reshape(-1, 3).T
    return SlottedWorkload(*columns, capacity)


def test_a_job_of_n_slots_leaves_room_for_the_next_n_slots_after_it_started() -> None:
    jobs = workload((2, 6, 3), (2, 6, 3), (3, 4, 1))
    outcome = run(jobs, FifoFirstFit(1, 10), slots=20)
    assert outcome.started.tolist() == [2, 5, 5]
    assert outcome.server.tolist() == [0, 0, 0]


def test_the_average_queue_counts_those_who_wait_at_the_end_of_every_slot_after_the_warm_up() -> None:
    jobs = workload((0, 10, 4), (0, 10, 4), (2, 10, 4))
    outcome = run(jobs, FifoFirstFit(1, 10), slots=10, samples=10)
    assert outcome.sampled.tolist() == list(range(10))
    assert outcome.queue.tolist() == [1, 1, 2, 2, 1, 1, 1, 1, 0, 0]
    assert outcome.mean_queue == 1.0
    assert run(jobs, FifoFirstFit(1, 10), slots=10, warmup=3).mean_queue == pytest.approx(6 / 7)


def test_jobs_that_still_wait_at_the_end_have_not_started() -> None:
    outcome = run(workload((0, 10, 99), (1, 10, 1)), FifoFirstFit(1, 10), slots=50)
    assert outcome.started.tolist() == [0, -1]
    assert outcome.queue[-1] == 1


@pytest.mark.parametrize("name", ["bf-j/s", "vqs"])
@given(history=histories())
def test_the_run_skips_idle_slots_and_comes_to_the_same_as_going_through_all(
    name: str, history: History
) -> None:
    make = DISCIPLINES[name]
    expected = [-1] * len(history.jobs)
    queue = []
    for slot, account in enumerate(slots(history, make(history.servers, history.capacity))):
        queue.append(len(account.waiting))
        for job, _ in account.starts:
            expected[job] = slot
    jobs = workload(*history.jobs, capacity=history.capacity)
    outcome = run(jobs, make(history.servers, history.capacity), slots=len(queue) + 1)
    assert outcome.started.tolist() == expected
    assert outcome.mean_queue == pytest.approx(sum(queue) / (len(queue) + 1))


@given(st.integers(0, 5))
def test_arrivals_and_service_have_the_means_they_were_asked_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrival = poisson(rng, 0.5, 20_000)
    assert len(arrival) == pytest.approx(10_000, rel=0.05)
    assert all(a <= b for a, b in pairwise(arrival[:100]))
    assert geometric(rng, 100, 20_000).mean() == pytest.approx(100, rel=0.05)
    assert fixed(7, 3).tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("job", "message"),
    [((0, 11, 1), "sizes must be"), ((0, 0, 1), "sizes must be"), ((0, 5, 0), "1 slot or more")],
)
def test_a_job_that_no_server_could_run_is_refused(job: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workload(job)


def test_jobs_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="back in time"):
        workload((3, 1, 1), (2, 1, 1))
