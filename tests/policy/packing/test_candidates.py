"""Candidate machines, many at a time: what they lose by company, and how they are filled."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import pytest

from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import Classes, Floats, Ints, classes_of
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.covering.candidates import Candidates, Slowdown, grow, joined
from starburst.policy.packing.plan import Situation
from starburst.policy.packing.throughput import Throughput, throughputs
from tests.builders import offer
from tests.policy.packing.properties import situation_of

BOX = offer("box", 4, dollars=6, cpus=8)


def asked(seed: int) -> tuple[Situation, Classes]:
    """A situation with tasks that some offer holds."""
    while True:
        situation = situation_of(Random(seed))
        classes = classes_of(situation)
        if len(classes):
            return situation, classes
        seed += 1000


def loads(classes: Classes, rng: Random, n: int = 20) -> Ints:
    """Machines that hold anything, whether it fits or not."""
    return np.array([[rng.randrange(3) for _ in range(len(classes))] for _ in range(n)], np.int64)


def lost(classes: Classes, table: Throughput, load: Ints) -> float:
    """Section 4.4: what a task loses, its whole job loses."""
    members = [c for c, n in enumerate(load) for _ in range(n)]
    speeds = throughputs(table, [classes.workload[c] for c in members])
    return sum((1 - v) * int(classes.job_price[c]) for c, v in zip(members, speeds, strict=True))


@pytest.mark.parametrize("seed", range(20))
class TestSlowdown:
    def test_what_is_lost_is_that_of_the_definition(self, seed: int) -> None:
        situation, classes = asked(seed)
        machines = loads(classes, Random(seed))
        want = [lost(classes, situation.throughput, load) for load in machines]
        assert Slowdown(classes).lost(machines) == pytest.approx(np.array(want), abs=1e-3)

    def test_what_a_task_more_loses_is_the_difference(self, seed: int) -> None:
        situation, classes = asked(seed)
        machines = loads(classes, Random(seed), 5)
        table, one = situation.throughput, np.eye(len(classes), dtype=np.int64)
        want = [
            [lost(classes, table, load + more) - lost(classes, table, load) for more in one]
            for load in machines
        ]
        assert Slowdown(classes).added(machines) == pytest.approx(np.array(want), abs=1e-3)


def two(slow: Mapping[tuple[str, str], float]) -> Classes:
    """A GPU task of $6 and one of CPUs, also $6 as nothing else is sold."""
    tasks = (
        Task("g", 0, Resources.of(2, 1), workload="g"),
        Task("c", 0, Resources.of(0, 2), workload="c"),
        Task("c", 1, Resources.of(0, 2), workload="c"),
    )
    return classes_of(Situation(tasks, (BOX,), throughput=Colocation.known(slow, default=1.0)))


def test_a_task_that_stands_still_loses_all_it_is_worth() -> None:
    classes = two({("g", "c"): 0.0})
    assert Slowdown(classes).lost(np.array([[1, 1]])) == pytest.approx([6e6], abs=10)


def test_nothing_is_gained_by_company() -> None:
    """Else a machine could cost less than nothing, and the program would have no optimum."""
    classes = two({("g", "c"): 1.5, ("c", "g"): 0.5})
    slowdown = Slowdown(classes)
    assert slowdown.lost(np.array([[1, 1]])) == pytest.approx([6e6])
    assert slowdown.added(np.array([[0, 1]]))[0, 0] == pytest.approx(6e6)


def grown(
    classes: Classes, start: Candidates, value: Floats, *, delay_price: float = 1.0, by_size: bool = False
) -> Candidates:
    """With the slow-downs of these classes."""
    return grow(classes, Slowdown(classes), start, value, delay_price=delay_price, by_size=by_size)


def empty(classes: Classes) -> Candidates:
    """One new box."""
    zeros = np.zeros(1, np.int64)
    return Candidates(zeros, zeros - 1, np.zeros((1, len(classes)), np.int64))


def stages(classes: Classes, *values: float, delay_price: float = 1.0) -> list[list[int]]:
    """How a box is filled with tasks of these values, in dollars per hour."""
    value = np.array([values]) * 1e6
    return grown(classes, empty(classes), value, delay_price=delay_price).load.tolist()


class TestGrow:
    @pytest.mark.parametrize("by_size", [False, True])
    @pytest.mark.parametrize("seed", range(20))
    def test_no_machine_holds_more_than_it_can_or_than_there_is(self, seed: int, by_size: bool) -> None:
        _, classes = asked(seed)
        offers, seeds = np.nonzero(classes.holds)
        start = Candidates(offers, np.full(len(seeds), -1), np.eye(len(classes), dtype=np.int64)[seeds])
        value = np.broadcast_to(1e9 + np.arange(len(classes)), (len(start), len(classes))).copy()
        found = grown(classes, start, value, by_size=by_size)
        assert len(found) >= len(start)
        for k, load in zip(found.offer, found.load, strict=True):
            took = np.flatnonzero(load)
            need = load[took] @ classes.demand[k, took]
            assert (need <= classes.market.capacity[k]).all()
        assert (found.load <= classes.counts).all()

    def test_what_brings_most_goes_first_and_every_stage_is_a_candidate(self) -> None:
        assert stages(two({}), 5, 2) == [[0, 0], [1, 0], [1, 1], [1, 2]]
        assert stages(two({}), 1, 2) == [[0, 0], [0, 1], [0, 2], [1, 2]]

    def test_what_brings_nothing_does_not_join(self) -> None:
        assert stages(two({}), 5, 0) == [[0, 0], [1, 0]]
        assert stages(two({}), 5, -np.inf) == [[0, 0], [1, 0]]

    def test_a_task_brings_its_value_less_what_all_lose_by_its_company(self) -> None:
        """g would lose 40 % of $6 to the first c, and 24 % of it to the second."""
        slow = {("g", "c"): 0.6}
        assert stages(two(slow), 9, 2) == [[0, 0], [1, 0]]
        assert stages(two(slow), 9, 2.5) == [[0, 0], [1, 0], [1, 1], [1, 2]]
        assert stages(two(slow), 9, 2, delay_price=0.5) == [[0, 0], [1, 0], [1, 1], [1, 2]]

    def test_by_size_a_small_task_goes_before_a_large_one_of_little_more_value(self) -> None:
        """g takes half of the GPUs, c a quarter of the CPUs."""
        classes = two({})
        value = np.array([[3e6, 2e6]])
        assert grown(classes, empty(classes), value).load[1].tolist() == [1, 0]
        assert grown(classes, empty(classes), value, by_size=True).load[1].tolist() == [0, 1]

    def test_a_task_that_asks_for_nothing_joins_as_often_as_there_is(self) -> None:
        tasks = tuple(Task(f"n{n}", 0, Resources.of(0, 0, 0)) for n in range(3))
        classes = classes_of(Situation(tasks, (BOX,)))
        for by_size in (False, True):
            found = grown(classes, empty(classes), np.array([[1.0]]), by_size=by_size)
            assert found.load.tolist() == [[0], [1], [2], [3]]

    def test_a_machine_that_is_too_full_takes_nothing(self) -> None:
        """Its offer may have shrunk since it was rented."""
        classes = two({})
        full = Candidates(np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([[3, 0]]))
        assert grown(classes, full, np.array([[1e6, 1e6]])).load.tolist() == [[3, 0]]


def test_candidates_are_told_apart_by_offer_machine_and_load() -> None:
    column = np.array([0, 0, 1, 0, 0])
    machine = np.array([-1, -1, -1, 0, -1])
    load = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [0, 1]])
    found = Candidates(column, machine, load).distinct()
    assert found.names() == Candidates(column, machine, load).take(np.array([0, 2, 3, 4])).names()
    assert len(joined([found, found]).distinct()) == len(found) == 4
