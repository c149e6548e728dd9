"""The bound is below every schedule: all of them on tiny traces, the simulator's on larger ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import highspy
import numpy as np
import pytest

from sim.bound.best_possible import Yardstick
from sim.bound.clairvoyant import Clairvoyant, delay_of
from sim.bound.dual import Starts
from sim.bound.lower import lower_bound
from sim.bound.problem import BurstProblem
from sim.readers.columns import trace_of
from sim.run import run
from sim.spec import Spec
from sim.trace import Trace
from tests.sim.cases import assert_equal

ONE_NODE = Spec(nodes=1, gpus_per_node=2, cpus_per_node=1e6, waiting="no-wait", out_of_order=True)
SMALL = Spec(nodes=2, gpus_per_node=4, cpus_per_node=1e6, out_of_order=True)


def drawn(seed: int, jobs: int, most_gpus: int) -> Trace:
    """A crowded trace in whole hours."""
    rng = np.random.default_rng(seed)
    return trace_of(
        [str(job) for job in range(jobs)],
        np.sort(rng.integers(0, max(2, jobs // 2), jobs)).astype(float),
        rng.integers(1, 6, jobs).astype(float),
        rng.integers(1, most_gpus + 1, jobs).astype(float),
    )


def cheapest(trace: Trace, capacity: int, delay_h: float) -> float:
    """The least bill of all schedules of a pool of GPUs: every choice of jobs, placed in every order."""
    best = float("inf")
    for chosen in product([False, True], repeat=len(trace)):
        rows = [job for job, on_cluster in enumerate(chosen) if on_cluster]
        bill = float(trace.cost.sum() - trace.cost[rows].sum())
        if bill < best and any(_delay(trace, order, capacity) <= delay_h for order in permutations(rows)):
            best = bill
    return best


def _delay(trace: Trace, order: tuple[int, ...], capacity: int) -> float:
    used = np.zeros(64)
    total = 0.0
    for job in order:
        start = arrival = int(trace.arrival_h[job])
        hours, gpus = int(trace.duration_h[job]), trace.gpus[job]
        while (used[start : start + hours] + gpus > capacity).any():
            start += 1
        used[start : start + hours] += gpus
        total += start - arrival
    return total


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_of_a_tiny_trace_is_cheaper(seed: int) -> None:
    trace, problem_of = drawn(seed, 4, 2), BurstProblem.of
    for delay_h in (0.0, 2.0, 5.0):
        bound = lower_bound(problem_of(trace, ONE_NODE), delay_h).at(delay_h)
        assert bound <= cheapest(trace, 2, delay_h) + 1e-6


@pytest.mark.parametrize("delay_h", [0.0, 20.0, 60.0])
def test_it_comes_near_the_linear_program(delay_h: float) -> None:
    """Jobs are shared out like water there, from each hour on; in whole hours nothing finer is of use."""
    trace = drawn(1, 60, 3)
    exact = _relaxed(trace, 4, delay_h)
    found = lower_bound(BurstProblem.of(trace, replace(ONE_NODE, nodes=2)), delay_h).at(delay_h)
    assert 0.9 * exact <= found <= exact * (1 + 1e-6)


def _relaxed(trace: Trace, capacity: int, delay_h: float) -> float:
    """The least bill if parts of a job may run from different hours, or leave; by HiGHS."""
    highs = highspy.Highs()
    highs.silent()
    use: dict[int, list[object]] = {}
    delays, bill = [], []
    for job in range(len(trace)):
        arrival, hours = int(trace.arrival_h[job]), int(trace.duration_h[job])
        starts = [highs.addVariable(0, 1) for _ in range(30)]
        cloud = highs.addVariable(0, 1)
        highs.addConstr(sum(starts) + cloud == 1)
        bill.append(float(trace.cost[job]) * cloud)
        for wait, start in enumerate(starts):
            delays.append(wait * start)
            for hour in range(arrival + wait, arrival + wait + hours):
                use.setdefault(hour, []).append(int(trace.gpus[job]) * start)
    for terms in use.values():
        highs.addConstr(sum(terms) <= capacity)
    highs.addConstr(sum(delays) <= delay_h)
    highs.minimize(sum(bill))
    return float(highs.getInfo().objective_function_value)


def test_any_prices_prove_a_bound() -> None:
    """Also those that no ascent would choose, and at any delay."""
    rng = np.random.default_rng(1)
    trace = drawn(3, 4, 2)
    edges = np.linspace(0, 12, 7)
    for _ in range(20):
        price, prices = float(rng.uniform(0.1, 3)), rng.uniform(0, 2, (1, 6))
        value = Starts(BurstProblem.of(trace, ONE_NODE), edges, 0.1).dual(price, prices).value
        assert all(value - price * d <= cheapest(trace, 2, d) + 1e-9 for d in (0.0, 3.0))


POLICIES = [
    {"waiting": "no-wait"},
    {"waiting": "infinite"},
    {"waiting": "constant", "factor": 1.0, "queue_cap": 3, "max_slowdown": 1.5},
    {"waiting": "compute", "budget_percent": 50.0, "data_gravity_h": 0.5, "cloud_delay_s": 600.0},
    {"waiting": "compute", "budget_mode": "calibrated", "hopeless": "leave", "warmup": 5},
    {"waiting": "star", "factor": 1.0, "t_max_h": 2.0},
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy["waiting"]))
def test_no_simulated_policy_is_cheaper(policy: dict[str, object]) -> None:
    trace = drawn(7, 40, 6)
    spec = replace(SMALL, **policy)  # type: ignore[arg-type]
    done = run(trace, spec, "core")
    delay_h = delay_of(trace, done.outcomes, spec)
    bound = lower_bound(BurstProblem.of(trace, spec), delay_h)
    assert bound.at(delay_h) <= done.result.cloud_cost + 1e-9
    assert bound.at(2 * delay_h) <= bound.at(delay_h) <= bound.at(delay_h / 2)


def test_the_clairvoyant_schedule_is_feasible_and_lies_between() -> None:
    trace = drawn(11, 60, 4)
    problem = BurstProblem.of(trace, SMALL)
    delay_h = 0.25 * trace.duration_h.sum()
    bound = lower_bound(problem, delay_h)
    schedule = Clairvoyant(trace, SMALL, "core").best(problem, bound, delay_h)
    assert schedule is not None
    no_wait = run(trace, replace(SMALL, waiting="no-wait"), "core").result.cloud_cost
    assert bound.at(delay_h) <= schedule.cost < no_wait
    assert schedule.delay_h <= delay_h
    out = schedule.outcomes
    for at in out.start_h:
        runs = (out.start_h <= at) & (at < out.end_h) & ~out.in_cloud
        assert all(trace.gpus[runs & (out.node == node)].sum() <= 4 for node in range(2))
    assert (out.start_h >= trace.arrival_h).all()
    assert out.end_h - out.start_h == pytest.approx(trace.duration_h)


def test_a_trace_may_say_how_long_a_job_waits_and_both_engines_obey() -> None:
    trace = drawn(5, 50, 4)
    waits = np.where(np.arange(50) % 3 == 0, np.nan, np.arange(50) % 5)
    told = replace(trace, max_wait_h=waits, priority=np.arange(50) % 4)
    spec = replace(SMALL, waiting="constant", factor=2.0, order="priority")
    core = run(told, spec, "core").outcomes
    assert_equal(run(told, spec).outcomes, core)
    bounded = replace(spec, max_slowdown=1.25)
    assert_equal(run(told, bounded).outcomes, run(told, bounded, "core").outcomes)
    left = core.in_cloud
    assert core.wait_h[left] == pytest.approx(np.where(np.isnan(waits), 2.0, waits)[left])


def test_what_waiting_for_ever_would_take_is_the_most_that_can_be_spent() -> None:
    trace = drawn(2, 40, 4)
    spec = replace(SMALL, waiting="compute", budget_percent=1000.0)
    best = Yardstick(trace, spec, "core").at_budget(1000.0)
    jct = [
        run(trace, replace(spec, waiting=how), "core").result.mean_jct_h for how in ("infinite", "no-wait")
    ]
    assert best.spendable_percent == pytest.approx(100 * (jct[0] / jct[1] - 1))
    assert best.spendable_percent < 1000, "P = 1000 % cannot be spent here"
    assert (best.at_least, best.possible) == (0, 0)


@pytest.mark.parametrize(
    "bound",
    [{"max_wait_h": 1.0}, {"max_slowdown": 1.5}, {"queue_cap": 2}, {"no_short_jobs_h": 3.0}],
    ids=lambda bound: next(iter(bound)),
)
def test_waiting_for_ever_has_no_bound(bound: dict[str, Any]) -> None:
    trace = drawn(2, 40, 4)
    for_ever, bounded = (Yardstick(trace, replace(SMALL, **more)).at_budget(25) for more in ({}, bound))
    assert bounded.spendable_percent == for_ever.spendable_percent
