"""Algorithm 1 of Eva: the paper's own example, interference, gangs, and the reference's plans to the cent."""

from __future__ import annotations

import csv
import json
from functools import cache
from typing import Any

import pytest

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import Classes, classes_of
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.packers.reconfigure import full
from starburst.policy.packing.plan import Situation
from starburst.policy.packing.throughput import NO_INTERFERENCE, Throughput
from tests.policy.packing.table3 import IT1, IT2, OFFERS, T1, T2, T3, T4
from tests.references import SHARED, needs_references

EVA = SHARED / "cases" / "eva"


def packed(*tasks: Task, table: Throughput = NO_INTERFERENCE) -> list[tuple[str, list[str]]]:
    """Machines with the tasks on each; tasks of one class are told apart by nothing."""
    classes = classes_of(Situation(tasks, OFFERS, throughput=table))
    machines = full(classes, classes.counts, table)
    return [
        (
            classes.market.offers[k].name,
            [classes.workload[c] for c in range(len(classes)) for _ in range(load[c])],
        )
        for k, load, times in machines
        for _ in range(times)
    ]


def cost(classes: Classes, table: Throughput = NO_INTERFERENCE) -> float:
    """Dollars per hour."""
    return sum(int(classes.market.rate[k]) * n for k, _, n in full(classes, classes.counts, table)) / 1e6


def test_the_example_of_the_paper() -> None:
    assert packed(T1, T2, T3, T4) == [("it1", ["t1", "t2", "t4"]), ("it3", ["t3"])]


def test_reservation_prices_are_those_of_the_paper() -> None:
    classes = classes_of(Situation((T1, T2, T3, T4), OFFERS))
    assert (classes.price / 1e6).tolist() == [12, 3, 0.8, 0.4]


@pytest.mark.parametrize(
    ("slow", "together"),
    [((0.8, 0.9), True), ((0.7, 0.8), False)],
    ids=["12.3 dollars pay for 12", "10.8 do not"],
)
def test_interference_decides_who_shares_a_machine(slow: tuple[float, float], together: bool) -> None:
    table = Colocation.known({("t1", "t2"): slow[0], ("t2", "t1"): slow[1]})
    alone = [("it1", ["t1"]), ("it2", ["t2"])]
    assert packed(T1, T2, table=table) == ([("it1", ["t1", "t2"])] if together else alone)


def test_a_straggler_costs_its_whole_job() -> None:
    """One of four tasks of a job beside another job saves its $3 and costs a tenth of $12."""
    gang = [Task("gang", rank, Resources.of(1, 4, 10), workload="gang") for rank in range(4)]
    table = Colocation.known({("gang", "t1"): 0.7, ("t1", "gang"): 1.0, ("gang", "gang"): 1.0})
    one = [Task("one", 0, Resources.of(1, 4, 10), workload="gang")]
    with_t1 = ("it1", ["t1", "gang"])
    assert with_t1 in packed(T1, *one, table=table)
    assert with_t1 not in packed(T1, *gang, table=table)


def test_what_was_recorded_of_a_set_counts_before_its_pairs() -> None:
    """Three one-GPU tasks and t1 fill it1; as a set they are slow, though each pair is not."""
    trio = [Task(str(n), 0, Resources.of(1, 2, 10), workload="t2") for n in range(2)]
    table = Colocation.known({(a, b): 1.0 for a in ("t1", "t2") for b in ("t1", "t2")})
    assert packed(T1, *trio, table=table) == [("it1", ["t1", "t2", "t2"])]
    slow = Colocation()
    for name, beside in (("t1", ("t2",)), ("t2", ("t1",)), ("t2", ("t2",))):
        slow.observe([(name, beside)], 1.0, now=0.0)
    slow.observe([("t1", ("t2", "t2"))], 0.3, now=0.0)
    slow.observe([("t2", ("t1", "t2"))], 0.3, now=0.0)
    assert packed(T1, *trio, table=slow) == [("it1", ["t1", "t2"]), ("it2", ["t2"])]


def test_a_full_machine_shrinks_to_the_cheapest_that_holds_its_tasks() -> None:
    big = Offer("big", Resources.of(8, 64, 488), Money.of(24))
    tasks = tuple(Task(str(n), 0, Resources.of(1, 4, 10)) for n in range(4))
    classes = classes_of(Situation(tasks, (big, IT1, IT2)))
    assert cost(classes) == 12


@needs_references
@pytest.mark.parametrize(
    ("table", "column"),
    [(NO_INTERFERENCE, "full_reconfig"), (Colocation(default=0.95), "full_reconfig_t095")],
    ids=["undisturbed", "every pair at .95"],
)
def test_the_plans_of_the_reference_to_the_cent(table: Throughput, column: str) -> None:
    for trial in micro_trials():
        names = [name for name, count in trial["counts"].items() for _ in range(count)]
        tasks = tuple(task(str(n), name) for n, name in enumerate(names))
        classes = classes_of(Situation(tasks, catalog(), throughput=table))
        assert cost(classes, table) == pytest.approx(trial[column], abs=1e-6)


@cache
def micro_trials() -> list[dict[str, Any]]:
    """200 tasks each, drawn from the ten workloads of the paper."""
    trials: list[dict[str, Any]] = json.loads((EVA / "micro_trials.json").read_text())["trials"]
    return trials


@cache
def catalog() -> tuple[Offer, ...]:
    """The 21 EC2 types with their cores."""
    with (EVA / "instance_types.csv").open(newline="") as lines:
        return tuple(
            Offer(
                row["name"],
                Resources.of(int(row["gpu"]), float(row["cpu_cores"]), float(row["ram_gb"])),
                Money.of(row["usd_per_hour"]),
                family=row["family"],
            )
            for row in csv.DictReader(lines)
        )


def task(job_id: str, workload: str) -> Task:
    """A task of one of the workloads."""
    with (EVA / "workloads.csv").open(newline="") as lines:
        row = next(row for row in csv.DictReader(lines) if row["workload"] == workload)
    asks = [
        (family, Resources.of(int(row["gpu"]), float(row[f"cpu_{family}"]), float(row["ram_gb"])))
        for family in ("p3", "c7i", "r7i")
    ]
    return Task(job_id, 0, asks[0][1], tuple(asks), workload)
