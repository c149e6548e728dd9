"""Owl, as Eva has it: at most two tasks a machine, the pairs worth most for their price first."""

from __future__ import annotations

from dataclasses import replace

from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.packers.owl import Owl
from starburst.policy.packing.plan import Plan, Rented, Situation
from tests.policy.packing.table3 import IT1, IT2, IT3, OFFERS, T1, T2, T4

CALM: dict[tuple[str, str], float] = {}


def plan(*tasks: Task, slow: dict[tuple[str, str], float] = CALM, on: tuple[Rented, ...] = ()) -> Plan:
    """What Owl does with these tasks, pairs being as fast as alone unless `slow` says other."""
    return Owl().plan(Situation(tasks, OFFERS, on, Colocation.known(slow, default=1.0)))


def machines(made: Plan) -> list[tuple[str, list[str]]]:
    """What is rented for whom."""
    return [(launch.offer.name, [task.job_id for task in launch.tasks]) for launch in made.launches]


def copies(task: Task, n: int) -> list[Task]:
    """Jobs like this one."""
    return [replace(task, job_id=f"{task.job_id}.{i}") for i in range(n)]


def test_the_pair_worth_most_for_its_price_goes_first() -> None:
    # t1 + t2 are worth $15 on it1 for $12; t1 + t1 $24. t4 + t4 are worth $0.80 on it3 for $0.80.
    assert machines(plan(*copies(T1, 2), T2, *copies(T4, 2))) == [
        ("it1", ["t1.0", "t1.1"]),
        ("it3", ["t4.0", "t4.1"]),
        ("it2", ["t2"]),
    ]


def test_worth_is_what_is_left_of_it_beside_the_other() -> None:
    rough, smooth = (replace(T2, job_id=name, workload=name) for name in ("rough", "smooth"))
    # $12 × 0.92 + $3 against $15; without slowdown the first of equals.
    assert machines(plan(T1, rough, smooth))[0] == ("it1", ["t1", "rough"])
    assert machines(plan(T1, rough, smooth, slow={("t1", "rough"): 0.92}))[0] == ("it1", ["t1", "smooth"])


def test_tasks_that_slow_each_other_much_do_not_meet_whatever_it_saves() -> None:
    # $24 × 0.85 for $12 would pay.
    assert machines(plan(*copies(T1, 2), slow={("t1", "t1"): 0.85})) == [("it1", ["t1.0"]), ("it1", ["t1.1"])]


def test_a_pair_that_is_not_worth_its_machine_does_not_meet() -> None:
    # 2 × $0.40 × 0.95 for $0.80.
    assert len(machines(plan(*copies(T4, 2), slow={("t4", "t4"): 0.95}))) == 2


def test_what_slows_one_task_of_a_job_slows_them_all() -> None:
    # t1 + t2 on it1: $12 + $3 − n × $3 × 0.1 for a job of n tasks, at $12.
    slow = {("t2", "t1"): 0.9, ("t2", "t2"): 0.0, ("t1", "t1"): 0.0}
    for size, meet in ((10, True), (11, False)):
        gang = [replace(T2, rank=rank) for rank in range(size)]
        made = plan(T1, *gang, slow=slow)
        assert any(len(launch.tasks) == 2 for launch in made.launches) is meet


def test_there_are_never_three_on_a_machine() -> None:
    made = plan(*copies(T4, 8))
    assert {len(launch.tasks) for launch in made.launches} == {2}


def test_a_running_pair_stays_though_a_better_partner_arrives() -> None:
    one, two = copies(T1, 2)
    made = plan(one, T2, two, on=(Rented("m", IT1, (one.key, T2.key)),))
    assert made.assignments == {"m": (one, T2)}
    assert not made.migrations


def test_a_running_pair_parts_when_it_turns_out_to_slow_each_other() -> None:
    one, two = copies(T1, 2)
    made = plan(one, two, slow={("t1", "t1"): 0.85}, on=(Rented("m", IT1, (one.key, two.key)),))
    assert made.assignments == {"m": (one,)}
    assert made.migrations == (two,)
    assert machines(made) == [("it1", ["t1.1"])]


def test_a_running_pair_parts_when_it_is_not_worth_its_machine() -> None:
    made = plan(T2, T4, on=(Rented("m", IT1, (T2.key, T4.key)),))
    assert made.terminations == ("m",)
    assert machines(made) == [("it2", ["t2"]), ("it4", ["t4"])]


def test_who_runs_alone_is_paired_with_who_comes() -> None:
    made = plan(T1, T2, on=(Rented("m", IT2, (T2.key,)),))
    assert made.migrations == (T2,)
    assert made.terminations == ("m",)
    assert machines(made) == [("it1", ["t1", "t2"])]


def test_who_comes_joins_a_machine_that_fits_the_pair() -> None:
    made = plan(T1, T2, on=(Rented("m", IT1, (T1.key,)),))
    assert made.assignments == {"m": (T1, T2)}
    assert not made.migrations


def test_who_is_left_alone_on_a_dear_machine_moves_to_a_cheaper_one() -> None:
    made = plan(T2, on=(Rented("m", IT1, (T2.key,)),))
    assert machines(made) == [("it2", ["t2"])]


def test_who_is_alone_stays_where_it_costs_no_more() -> None:
    cheap = replace(IT3, name="sold out", price_per_hour=Money.of("0.4"))
    assert plan(T4, on=(Rented("m", cheap, (T4.key,)),)).assignments == {"m": (T4,)}


def test_thousands_of_tasks_are_paired_by_class() -> None:
    made = plan(*copies(T1, 2000), *copies(T2, 1000), *copies(T4, 1001))
    assert len(made.launches) == 1000 + 1000 + 501
