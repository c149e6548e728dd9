"""Experiments on packed clouds: what their jobs, packers and words rest on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sim.eva_replica.run import simulate_packed
from sim.experiments.packing import full as packing_full
from sim.experiments.packing.eva_files import EVA, beside, from_table_7, spread, table_7
from sim.experiments.packing.figures import LARGE, arriving, base_trace, with_gangs, with_large_jobs
from sim.experiments.packing.stratus import BATCH, Misjudging, SpotFleet, batch_jobs, one
from sim.packing.cloud import CloudModel
from sim.packing.inputs import MachineType, PackedJob, PairThroughput
from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.plan import Plan, Situation
from starburst.policy.packing.throughput import NO_INTERFERENCE

needs_eva = pytest.mark.skipif(not EVA.is_dir(), reason="the files of Eva are not here: set STARBURST_SHARED")

SMALL = Offer("small", Resources.of(0, 2, 8), Money.of(1))
LARGE_ONE = Offer("large", Resources.of(0, 8, 32), Money.of(4))


def job(name: str, arrival_s: float, duration_s: float, cpus: float) -> PackedJob:
    return PackedJob(
        name, arrival_s, duration_s, (Task(name, 0, Resources.of(0, cpus, 1), workload=BATCH.name),)
    )


def test_the_fleet_fills_what_runs_and_rents_the_cheapest_that_holds_the_rest() -> None:
    trace = [job("big", 0, 7200, 6), job("joins", 600, 3600, 2), job("alone", 1200, 3600, 2)]
    found = simulate_packed(
        trace,
        CloudModel(
            [MachineType(SMALL), MachineType(LARGE_ONE)], {BATCH.name: BATCH}, PairThroughput(default=1.0)
        ),
        SpotFleet(),
        sees=PairThroughput(default=1.0),
    )
    assert (found.instances, found.migrations) == (2, 0)
    assert found.cost == pytest.approx(2 * 4 + 1, rel=0.1)


class Remembers:
    """Packs nothing; says what it was told."""

    def __init__(self) -> None:
        self.told: list[float | None] = []

    def plan(self, situation: Situation) -> Plan:
        self.told += [task.remaining_s for task in situation.tasks]
        return Plan(())


@pytest.mark.parametrize(("left_s", "told_s"), [(1000.0, 600.0), (500.0, 100.0), (300.0, 500.0)])
def test_an_estimate_that_was_outlived_doubles(left_s: float, told_s: float) -> None:
    inner = Remembers()
    task = Task("a", 0, Resources(), remaining_s=left_s)
    Misjudging(inner, {"a": 1000.0}, {"a": 600.0}).plan(
        Situation((task,), (SMALL,), throughput=NO_INTERFERENCE)
    )
    assert inner.told == [pytest.approx(told_s)]


def test_batch_jobs_last_less_than_a_day_and_depend_on_the_seed_alone() -> None:
    jobs = batch_jobs(1, 200)
    assert jobs == batch_jobs(1, 200)
    assert jobs != batch_jobs(2, 200)
    assert all(0 <= made.duration_s < 86_400 for made in jobs)
    assert {len(made.tasks) for made in jobs} == {1, 2, 4, 8}


@needs_eva
def test_stratus_pays_less_than_the_fleet_on_batch_jobs() -> None:
    assert one(("Stratus", 0), 60).cost < one(("Fleet", 0), 60).cost


@needs_eva
def test_table_7_has_ten_workloads_of_which_two_are_gangs() -> None:
    assert Counter(size for _, size in table_7()) == {1: 8, 2: 1, 4: 1}
    assert {len(made.tasks) for made in from_table_7(0, 20, 0.5, 3.0, 4)} == {4}
    assert all(1800 <= made.duration_s <= 10_800 for made in from_table_7(0, 50, 0.5, 3.0))


@needs_eva
def test_a_greater_share_of_large_jobs_has_all_those_of_a_lesser_one() -> None:
    def large(share: float) -> set[str]:
        return {
            made.id
            for made, was in zip(with_large_jobs(share), base_trace(), strict=True)
            if made.tasks != was.tasks
        }

    few, many = large(0.2), large(0.6)
    assert few < many
    assert len(many) == pytest.approx(0.6 * len(base_trace()), abs=2)
    grown = [made for made in with_large_jobs(0.6) if made.id in many]
    assert {made.tasks[0].resources.gpus for made in grown} == {*LARGE}
    unchanged = [was for was in base_trace() if not was.tasks[0].resources.gpus]
    assert [made for made in with_large_jobs(0.6) if not made.tasks[0].resources.gpus] == unchanged


@needs_eva
def test_gangs_copy_tasks_and_keep_the_work() -> None:
    for made, was in zip(with_gangs(0.5), base_trace(), strict=True):
        assert len(made.tasks) in {1, 2, 4}
        assert {task.resources for task in made.tasks} == {was.tasks[0].resources}
        assert (made.arrival_s, made.iterations) == (was.arrival_s, was.iterations)


@needs_eva
def test_another_rate_stretches_arrivals_only() -> None:
    slow = arriving(1.5)
    assert [made.arrival_s for made in slow] == [2 * was.arrival_s for was in base_trace()]


def test_rows_are_kept_one_by_one_and_told_in_a_table(tmp_path: Path) -> None:
    trace = [job("a", 0, 3600, 2)]
    cloud = CloudModel([MachineType(SMALL)], {BATCH.name: BATCH}, PairThroughput())
    result = simulate_packed(trace, cloud, SpotFleet(), sees=PairThroughput())
    file = tmp_path / "rows.json"
    for name in ("none", "eva", "eva", "optimal"):
        packing_full.keep("200", name, result, file)
    rows = packing_full.saved_rows(file)["200"]
    assert sorted(rows) == ["eva", "none", "optimal"]
    title, _, table, reading = packing_full.part("200", rows)
    assert title == "## The first 200 jobs, beside the artifact"
    assert "| Eva | $15,236 | **$1** | 73.5% · **100.0%** |" in table
    assert "`optimal` costs 0.0 % less than our Eva" in reading


def test_words_of_figures() -> None:
    assert (beside(90, 100), beside(110, 100)) == ("10.0 % less", "10.0 % more")
    assert spread([1.0, 3.0], ".1f", " %") == "2.0 ± 1.4 %"
