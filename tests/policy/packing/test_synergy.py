"""Synergy, as Eva has it: best fit where the machine is worth more by it, else the cheapest offer."""

from __future__ import annotations

from dataclasses import replace

from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.packers.synergy import Synergy
from starburst.policy.packing.plan import Plan, Rented, Situation
from tests.builders import offer
from tests.policy.packing.table3 import IT1, IT2, IT3, OFFERS, T1, T2, T3, T4

BOX = offer("box", 0, dollars=4, cpus=8)


def cpus(name: str, n: int, **more: str) -> Task:
    """A job of one task with so many CPUs."""
    return Task(name, 0, Resources.of(0, n), **more)  # type: ignore[arg-type]


def plan(*tasks: Task, slow: dict[tuple[str, str], float] | None = None, on: tuple[Rented, ...] = ()) -> Plan:
    """What Synergy does with these tasks, pairs being as fast as alone unless `slow` says other."""
    return Synergy().plan(Situation(tasks, (*OFFERS, BOX), on, Colocation.known(slow or {}, default=1.0)))


def test_a_task_goes_where_least_is_left_over() -> None:
    roomy, tight = cpus("roomy", 2), cpus("tight", 5)
    boxes = (Rented("a", BOX, (roomy.key,)), Rented("b", BOX, (tight.key,)))
    made = plan(roomy, tight, new := cpus("new", 3), on=boxes)
    assert made.assignments == {"a": (roomy,), "b": (tight, new)}
    assert not made.launches


def test_a_task_joins_if_the_machine_is_worth_more_by_it() -> None:
    # $12 × 0.8 + $3 × 0.9 = $12.30 (Eva, section 4.3).
    on = (Rented("m", IT1, (T1.key,)),)
    assert plan(T1, T2, slow={("t1", "t2"): 0.8, ("t2", "t1"): 0.9}, on=on).assignments == {"m": (T1, T2)}


def test_a_task_stays_away_if_the_machine_is_worth_less_by_it() -> None:
    # $12 × 0.7 + $3 × 0.8 = $10.80; $12 × 0.75 + $3 is no more than before.
    for slow in ({("t1", "t2"): 0.7, ("t2", "t1"): 0.8}, {("t1", "t2"): 0.75}):
        made = plan(T1, T2, slow=slow, on=(Rented("m", IT1, (T1.key,)),))
        assert made.assignments == {"m": (T1,)}
        assert [(launch.offer, launch.tasks) for launch in made.launches] == [(IT2, (T2,))]


def test_what_slows_one_task_of_a_job_slows_them_all() -> None:
    # Four tasks of t2's job lose 0.2 × $12 together: $12 + $3 − $2.40 > $12. Six lose 0.2 × $18.
    on, slow = (Rented("m", IT1, (T1.key,)),), {("t2", "t1"): 0.8}
    elsewhere = tuple(Rented(f"n{rank}", IT2, (("t2", rank),)) for rank in range(1, 6))
    for size, joins in ((4, True), (6, False)):
        gang = [replace(T2, rank=rank) for rank in range(size)]
        made = plan(T1, *gang, slow=slow, on=(*on, *elsewhere[: size - 1]))
        assert (made.assignments["m"] == (T1, T2)) is joins


def test_a_new_machine_is_the_cheapest_that_holds_the_task_and_others_may_join_it() -> None:
    made = plan(T1, T2, T3, T4)
    assert [(launch.offer, launch.tasks) for launch in made.launches] == [(IT1, (T1, T2, T4)), (IT3, (T3,))]


def test_an_empty_machine_is_used_only_where_one_like_it_would_be_rented() -> None:
    made = plan(T3, on=(Rented("dear", IT1), Rented("same", IT3)))
    assert made.assignments == {"same": (T3,)}
    assert made.terminations == ("dear",)
    assert plan(T3, on=(Rented("dear", IT1),)).terminations == ("dear",)


def test_nothing_that_runs_is_moved() -> None:
    made = plan(T3, T4, on=(Rented("a", IT1, (T3.key,)), Rented("b", IT1, (T4.key,))))
    assert made.assignments == {"a": (T3,), "b": (T4,)}
