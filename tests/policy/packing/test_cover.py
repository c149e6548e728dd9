"""The certified optimum: equal to brute force and to recorded optima, within capacity, always the same."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.readers.packing import read_catalog
from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import MICRO, Money
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import Classes, classes_of
from starburst.policy.packing.covering.cover import Cover, Limits, cover
from starburst.policy.packing.covering.offline import OfflineOptimal, dealt
from starburst.policy.packing.covering.patterns import knapsack
from starburst.policy.packing.plan import Situation
from starburst.policy.packing.throughput import NO_INTERFERENCE, Company, Throughput, throughputs
from tests.references import SHARED

EVA = SHARED / "cases" / "eva"
needs_eva = pytest.mark.skipif(
    not (EVA / "micro_trials.json").is_file() and "STARBURST_REQUIRE_SHARED" not in os.environ,
    reason="the reference cases are not here: set STARBURST_SHARED to the folder that has cases/eva",
)
ROUGH = Limits(cells=40, rough_cells=20)


class Table:
    """Pairs, and one set of three that is recorded as a whole."""

    def __init__(self, slow: float) -> None:
        self.slow = slow

    def pair(self, workload: str, beside: str) -> float:
        return {"a": 0.97, "b": 1.0 - self.slow}[min(workload, beside)]

    def exact(self, company: Company) -> dict[str, float] | None:
        return {"a": 0.5} if company == ("a", "a", "b") else None


def classes(tasks: Sequence[Task], offers: Sequence[Offer], table: Throughput = NO_INTERFERENCE) -> Classes:
    return classes_of(Situation(tuple(tasks), tuple(offers), throughput=table))


def loads(classes: Classes, offer: int) -> list[tuple[int, ...]]:
    """All that one instance of an offer holds."""
    ranges = [range(int(n) + 1) for n in classes.counts]
    room = classes.market.capacity[offer]
    fits: Callable[[tuple[int, ...]], bool] = lambda load: all(  # noqa: E731
        sum(n * int(d) for n, d in zip(load, classes.demand[offer, :, r], strict=True)) <= room[r]
        for r in range(3)
    )
    return [load for load in product(*ranges) if any(load) and fits(load)]


def cheapest_by_brute_force(classes: Classes, table: Throughput) -> int:
    """Least rent plus lost throughput in micro-dollars per hour, over all ways to share the tasks out."""
    choices: dict[tuple[int, ...], int] = {}
    for k in range(classes.market.open):
        for load in loads(classes, k):
            on = [c for c, n in enumerate(load) for _ in range(n)]
            speeds = throughputs(table, [classes.workload[c] for c in on])
            lost = sum((1 - s) * int(classes.job_price[c]) for s, c in zip(speeds, on, strict=True))
            cost = int(classes.market.rate[k]) + round(lost)
            choices[load] = min(choices.get(load, cost), cost)

    @cache
    def least(left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        first = next(c for c, n in enumerate(left) if n)
        return min(
            cost + least(tuple(n - took for n, took in zip(left, load, strict=True)))
            for load, cost in choices.items()
            if load[first] and all(took <= n for n, took in zip(left, load, strict=True))
        )

    return least(tuple(int(n) for n in classes.counts))


def check(classes: Classes, found: Cover) -> None:
    """Every task once, nothing over capacity, and the cost is that of the offers."""
    covered = sum((load * times for _, load, times in found.patterns), np.zeros(len(classes), np.int64))
    assert covered.tolist() == classes.counts.tolist()
    for k, load, _ in found.patterns:
        assert np.all(load @ np.where(load[:, None] > 0, classes.demand[k], 0) <= classes.market.capacity[k])
        assert k < classes.market.open
    assert found.cost_micro == sum(int(classes.market.rate[k]) * times for k, _, times in found.patterns)
    assert found.bound_micro <= found.cost_micro + found.loss_micro


sizes = st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(1, 9))
markets = st.lists(st.tuples(sizes, st.integers(1, 60), st.sampled_from("xy")), min_size=1, max_size=4)
demands = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 5), st.integers(0, 5), st.integers(1, 4), st.sampled_from("ab")
    ),
    min_size=1,
    max_size=3,
)


def instance(market: list, demand: list) -> tuple[list[Task], list[Offer]]:
    """Tasks and offers; GPUs, CPUs and GiB as drawn, and in family y tasks ask for one CPU more."""
    offers = [
        Offer(f"o{i}", Resources.of(*size), Money.of(dollars / 8), family=family)
        for i, (size, dollars, family) in enumerate(market)
    ]
    tasks = []
    for gpus, cpus, gib, times, workload in demand:
        here, there = Resources.of(gpus, cpus, gib), Resources.of(gpus, cpus + 1, gib)
        for _ in range(times):
            tasks.append(Task(f"j{len(tasks)}", 0, here, (("x", here), ("y", there)), workload))
    return tasks, offers


@given(markets, demands)
def test_small_cases_are_solved_to_the_optimum_and_proven(market: list, demand: list) -> None:
    found = classes(*instance(market, demand))
    best = cover(found, found.counts)
    check(found, best)
    assert best.optimal
    assert best.cost_micro == cheapest_by_brute_force(found, NO_INTERFERENCE)


@given(markets, demands)
def test_a_bound_on_a_rough_grid_is_lower_but_holds(market: list, demand: list) -> None:
    found = classes(*instance(market, demand))
    rough = cover(found, found.counts, limits=ROUGH)
    check(found, rough)
    assert rough.bound_micro <= cheapest_by_brute_force(found, NO_INTERFERENCE) <= rough.cost_micro


@given(markets, demands, st.sampled_from([0.01, 0.2]))
def test_with_interference_the_bound_holds_and_the_loss_is_told(
    market: list, demand: list, slow: float
) -> None:
    table = Table(slow)
    found = classes(*instance(market, demand), table)
    best = cover(found, found.counts, throughput=table)
    check(found, best)
    optimum = cheapest_by_brute_force(found, table)
    # Rounding: half a micro-dollar for every instance.
    assert best.bound_micro - len(found.of) <= optimum <= best.cost_micro + best.loss_micro + len(found.of)


@given(markets, demands)
@settings(max_examples=20)
def test_a_pool_of_columns_changes_neither_cost_nor_bound(market: list, demand: list) -> None:
    tasks, offers = instance(market, demand)
    before = classes(tasks, offers)
    cold = cover(before, before.counts)
    now = classes(tasks[1:] + tasks[:1], offers[::-1])
    warm = cover(now, now.counts, pool=cold.pool)
    check(now, warm)
    assert (warm.cost_micro, warm.bound_micro) == (cold.cost_micro, cold.bound_micro)


def test_an_answer_is_no_worse_than_the_plan_it_is_given() -> None:
    tasks, offers = instance(
        [((4, 9, 9), 40, "x"), ((1, 3, 3), 11, "x")], [(1, 2, 2, 4, "a"), (0, 1, 1, 3, "a")]
    )
    found = classes(tasks, offers)
    best = cover(found, found.counts)
    poor = Limits(rounds=0, nodes=0, columns=0)
    given_it = cover(found, found.counts, start=best.patterns, limits=poor)
    check(found, given_it)
    assert given_it.cost_micro == best.cost_micro


def test_no_tasks_cost_nothing() -> None:
    found = classes(*instance([((1, 1, 1), 8, "x")], [(0, 1, 1, 1, "a")]))
    empty = cover(found, np.zeros(1, np.int64))
    assert (empty.patterns, empty.cost_micro, empty.bound_micro, empty.optimal) == ((), 0, 0, True)


def test_a_plan_names_each_task_once_and_its_bound() -> None:
    tasks, offers = instance([((2, 4, 4), 16, "x")], [(1, 1, 1, 5, "a"), (4, 1, 1, 1, "a")])
    plan = OfflineOptimal().plan(Situation(tuple(tasks), tuple(offers)))
    assert sorted(task.job_id for launch in plan.launches for task in launch.tasks) == [
        f"j{i}" for i in range(5)
    ]
    assert [task.job_id for task, _ in plan.unplaced] == ["j5"]
    assert plan.cost == plan.lower_bound == Money.of(6)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 6), st.integers(0, 50)), max_size=4
    )
)
def test_the_knapsack_table_is_exact_and_lists_all_patterns_worth_enough(items: list) -> None:
    demand = np.array([item[:3] for item in items], np.int64).reshape(-1, 3)
    worth = np.array([item[3] for item in items], np.int64)
    counts = np.full(len(items), 3)
    room = np.array([[2, 5, 5], [3, 9, 12]])
    sack = knapsack(np.arange(2), room, demand, counts, cells=10**6)
    table = sack.solve(worth, feasible=False, prune=False)
    for j in range(2):
        patterns = [np.array(p, np.int64) for p in product(range(4), repeat=len(items))]
        fitting = [p for p in patterns if np.all(p @ demand <= room[j])]
        best = max(int(p @ worth) for p in fitting)
        pattern = sack.solve(worth, feasible=True).pattern(j)
        assert table.best()[j] == best == pattern @ worth
        assert np.all(pattern @ demand <= room[j])
        one = np.eye(len(items), dtype=np.int64)
        full = [
            p
            for p in fitting
            if not any(np.all((p + e) @ demand <= room[j]) and (p + e).max() < 4 for e in one)
        ]
        listed = table.within(j, best // 2, 1000)
        assert listed is not None
        assert sorted(map(tuple, listed)) == sorted(tuple(p) for p in full if p @ worth >= best // 2)


@needs_eva
def test_the_recorded_trials_are_solved_to_their_proven_optima() -> None:
    offers = [m.offer for m in read_catalog(EVA / "instance_types.csv", cpu_column="cpu_cores")]
    with (EVA / "workloads.csv").open(encoding="utf-8") as lines:
        kinds = {row["workload"]: row for row in csv.DictReader(lines)}
    trials = json.loads((EVA / "micro_trials.json").read_text(encoding="utf-8"))["trials"]
    for trial in trials:
        tasks = [_task(kinds[name], f"{name}-{i}") for name, n in trial["counts"].items() for i in range(n)]
        found = classes(tasks, offers)
        best = cover(found, found.counts)
        check(found, best)
        assert best.optimal
        assert best.cost_micro / MICRO == pytest.approx(trial["best_integer"], abs=1e-6)
    assert _plain(cover(found, found.counts)) == _plain(best)


def _plain(found: Cover) -> list[tuple[int, list[int], int]]:
    return [(k, load.tolist(), times) for k, load, times in found.patterns]


def _task(row: dict[str, str], job: str) -> Task:
    per_family = tuple(
        (family, Resources.of(int(row["gpu"]), float(row[f"cpu_{family}"]), float(row["ram_gb"])))
        for family in ("p3", "c7i", "r7i")
    )
    return Task(job, 0, per_family[0][1], per_family, row["workload"])


def test_tasks_are_dealt_to_instances_by_class() -> None:
    tasks, offers = instance([((2, 4, 4), 16, "x")], [(1, 1, 1, 4, "a")])
    found = classes(tasks, offers)
    launches = dealt(found, [(0, np.array([2]), 2)])
    assert [[task.job_id for task in on] for _, on in launches] == [["j0", "j1"], ["j2", "j3"]]
