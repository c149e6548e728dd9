"""Stratus puts tasks together that end together (Stratus, SoCC'18: slides 7 to 11)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.packers.stratus import Stratus, assumed_remaining_s, bin_of
from starburst.policy.packing.plan import Memory, Plan, Rented, Situation
from tests.builders import offer

MINUTE = 60.0
BOX = offer("box", 0, dollars=4, cpus=4)
TWIN = offer("twin", 0, dollars=2.5, cpus=2)


def task(name: str, minutes: float | None, cpus: float = 1) -> Task:
    """A job of one task that needs so many minutes more."""
    return Task(name, 0, Resources.of(0, cpus), remaining_s=None if minutes is None else minutes * MINUTE)


def machines(**held: Sequence[Task]) -> tuple[Situation, list[Task]]:
    """Boxes by name with their tasks."""
    rented = tuple(Rented(name, BOX, tuple(t.key for t in tasks)) for name, tasks in held.items())
    return Situation((), (BOX,), rented), [t for tasks in held.values() for t in tasks]


def joins(new: Task, **held: Sequence[Task]) -> str:
    """The machine that a new task goes to; "" is a new one."""
    situation, running = machines(**held)
    plan = Stratus().plan(Situation((*running, new), situation.offers, situation.instances))
    return next((name for name, tasks in plan.assignments.items() if new in tasks), "")


@pytest.mark.parametrize(
    ("minutes", "number"),
    [(0.5, 0), (1, 1), (1.9, 1), (2, 2), (3.9, 2), (4, 3), (7.9, 3), (8, 4), (11, 4), (16, 5)],
)
def test_bins_double_in_width(minutes: float, number: int) -> None:
    assert bin_of(minutes * MINUTE) == number


def test_an_unknown_run_time_is_in_a_bin_in_the_middle() -> None:
    assert bin_of(None) == bin_of(0.0) == bin_of(-5.0) == bin_of(180 * MINUTE)


class TestANewTask:
    own = (task("own", 9),)
    greater = (task("greater", 20),)
    greatest = (task("greatest", 40),)
    lesser = (task("lesser", 5),)
    least = (task("least", 1),)

    def test_prefers_its_own_bin(self) -> None:
        got = joins(task("new", 11), a=self.least, b=self.lesser, c=self.greatest, d=self.greater, e=self.own)
        assert got == "e"

    def test_then_the_nearest_greater_bin(self) -> None:
        assert joins(task("new", 11), a=self.least, b=self.lesser, c=self.greatest, d=self.greater) == "d"

    def test_then_the_greatest_lesser_bin(self) -> None:
        assert joins(task("new", 11), a=self.least, b=self.lesser) == "b"

    def test_and_only_then_a_new_machine(self) -> None:
        assert joins(task("new", 11), a=(task("full", 11, cpus=4),)) == ""

    def test_passes_by_what_is_full(self) -> None:
        full = (task("full", 9, cpus=4),)
        assert joins(task("new", 11), a=full, b=self.greater, c=self.lesser) == "b"

    def test_joins_in_its_own_bin_whoever_ends_closest_to_it(self) -> None:
        assert joins(task("new", 11), a=(task("x", 8),), b=(task("y", 12),), c=(task("z", 15),)) == "b"

    def test_joins_in_other_bins_the_machine_with_most_left_over(self) -> None:
        assert joins(task("new", 11), a=(task("x", 20, 2),), b=(task("y", 30, 1),)) == "b"

    def test_looks_at_the_longest_task_of_a_machine(self) -> None:
        mixed = (task("short", 11), task("long", 20))
        assert joins(task("new", 11), a=mixed, b=(task("own", 9),)) == "b"

    def test_keeps_no_empty_machine_alive(self) -> None:
        plan = Stratus().plan(Situation((task("new", 11),), (TWIN, BOX), (Rented("a", BOX),)))
        assert plan.terminations == ("a",)
        assert [launch.offer.name for launch in plan.launches] == ["twin"]


def rented(*tasks: Task) -> list[tuple[str, list[str]]]:
    """What is rented for these tasks."""
    plan = Stratus().plan(Situation(tasks, (TWIN, BOX)))
    return [(launch.offer.name, [t.job_id for t in launch.tasks]) for launch in plan.launches]


class TestScalingOut:
    def test_rents_what_costs_least_per_resource_used(self) -> None:
        assert rented(task("a", 9)) == [("twin", ["a"])]
        # $1.25 a CPU on the twin, $1.33 on a box of which one CPU stays idle, $1 on one that is full.
        assert rented(*(task(n, 9) for n in "ab")) == [("twin", ["a", "b"])]
        assert rented(*(task(n, 9) for n in "abcd")) == [("box", ["a", "b", "c", "d"])]

    def test_fills_a_machine_with_large_tasks_first(self) -> None:
        assert rented(task("a", 9, 2), task("b", 9, 1), task("c", 9, 3)) == [
            ("box", ["c", "b"]),
            ("twin", ["a"]),
        ]

    def test_groups_only_tasks_of_a_bin(self) -> None:
        assert rented(task("a", 9, 2), task("b", 500, 2)) == [("twin", ["b"]), ("twin", ["a"])]

    def test_does_not_count_what_a_task_does_not_use(self) -> None:
        gpus = offer("gpus", 4, dollars=12, cpus=4)
        plan = Stratus().plan(Situation((task("a", 9),), (gpus, BOX)))
        assert [launch.offer.name for launch in plan.launches] == ["box"]

    def test_takes_an_empty_machine_it_has(self) -> None:
        situation = Situation((task("a", 9, 4),), (BOX,), (Rented("idle", BOX),))
        plan = Stratus().plan(situation)
        assert list(plan.assignments) == ["idle"]
        assert (plan.launches, plan.terminations) == ((), ())


class TestClearing:
    few, many = (task("few", 9),), (task("many", 9, cpus=2),)

    def plan(self, now: float, idle_since: dict[str, float], **held: Sequence[Task]) -> Plan:
        situation, running = machines(**held)
        return Stratus().plan(
            Situation(
                tuple(running), (BOX,), situation.instances, now=now, memory=Memory(idle_since=idle_since)
            )
        )

    def test_begins_to_count_when_a_machine_is_little_used(self) -> None:
        plan = self.plan(100.0, {"gone": 5.0}, a=self.few, b=self.many)
        assert plan.memory.idle_since == {"a": 100.0}
        assert not plan.migrations

    def test_moves_all_tasks_after_long_and_gives_the_machine_back(self) -> None:
        plan = self.plan(2000.0, {"a": 100.0}, a=self.few, b=self.many)
        assert plan.terminations == ("a",)
        assert plan.migrations == self.few
        assert plan.memory.idle_since == {}

    def test_does_nothing_if_a_task_has_no_other_place(self) -> None:
        full = (task("full", 9, cpus=4),)
        plan = self.plan(2000.0, {"a": 100.0}, a=self.few, b=full)
        assert (plan.terminations, plan.migrations) == ((), ())
        assert plan.memory.idle_since == {"a": 100.0}

    def test_leaves_all_tasks_if_one_has_no_other_place(self) -> None:
        two = (task("one", 9, cpus=0.5), task("two", 8, cpus=1))
        plan = self.plan(2000.0, {"a": 100.0}, a=two, b=(task("b", 9, cpus=3.5),))
        assert plan.assignments["a"] == two
        assert (plan.terminations, plan.migrations) == ((), ())

    def test_moves_no_task_twice(self) -> None:
        least, less, little = task("least", 9, 0.1), task("less", 9, 0.3), task("little", 8.5, 0.4)
        since = {"a": 0.0, "b": 0.0, "c": 0.0}
        plan = self.plan(2000.0, since, a=(least,), b=(less,), c=(little,))
        assert plan.terminations == ("a", "c")
        assert plan.assignments == {"b": (less, least, little)}

    def test_counts_anew_when_a_machine_took_tasks_in(self) -> None:
        small, other = task("small", 9, 0.5), task("other", 9, 0.5)
        plan = self.plan(2000.0, {"a": 0.0, "b": 0.0}, a=(small,), b=(other,))
        assert plan.memory.idle_since == {"b": 2000.0}

    def test_of_two_machines_leaves_one(self) -> None:
        other = (task("other", 9),)
        plan = self.plan(2000.0, {"a": 0.0, "b": 0.0}, a=self.few, b=other)
        assert plan.terminations == ("a",)
        assert set(plan.assignments["b"]) == {*self.few, *other}


@pytest.mark.parametrize(
    ("estimate", "elapsed", "left"),
    [(10, 4, 6), (10, 10, 10), (10, 15, 5), (10, 20, 20), (10, 39, 1), (0, 7, 7), (None, 7, None)],
)
def test_a_task_that_outlives_its_estimate_is_at_half_its_run_time(
    estimate: float | None, elapsed: float, left: float | None
) -> None:
    assert assumed_remaining_s(estimate, elapsed) == left
