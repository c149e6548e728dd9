"""Without packing each task gets the cheapest machine that holds it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.packers.none import NoPacking, cheapest_first
from starburst.policy.packing.plan import Plan, Rented, Situation
from tests.builders import offer

OFFERS = (
    offer("mystery", 8, dollars=None, gpu_type="V100"),
    offer("big", 8, dollars=20, gpu_type="V100"),
    offer("small", 1, dollars=3, gpu_type="V100"),
    offer("cpu", 0, dollars=1, cpus=96),
)


def plan(*demands: Resources, offers: Sequence[Offer] = OFFERS) -> Plan:
    """Tasks of one job, one per demand."""
    tasks = tuple(Task("a", rank, demand) for rank, demand in enumerate(demands))
    return NoPacking().plan(Situation(tasks, tuple(offers)))


def test_every_task_gets_a_machine_of_its_own() -> None:
    made = plan(Resources.of(1), Resources.of(2), Resources.of(1))
    assert [launch.offer.name for launch in made.launches] == ["small", "big", "small"]
    assert [[task.rank for task in launch.tasks] for launch in made.launches] == [[0], [1], [2]]


def test_an_unknown_price_is_asked_last_but_asked() -> None:
    assert plan(Resources.of(8)).launches[0].offer.name == "big"
    assert plan(Resources.of(8), offers=OFFERS[:1]).launches[0].offer.name == "mystery"


@pytest.mark.parametrize(
    ("demand", "lacks"),
    [
        (Resources.of(16), "no offer has 16 GPUs (the largest has 8)"),
        (Resources.of(1, cpus=128), "no offer has 128 CPUs (the largest has 96)"),
        (Resources.of(1, memory_gib=512), "no offer has 512 GiB of memory (the largest has 256)"),
        (Resources.of(1, gpu_type="A100"), "no offer has A100 GPUs"),
        (Resources.of(1, cpus=96), "no single offer has 1 GPU, 96 CPUs"),
    ],
)
def test_what_fits_no_offer_says_which_resource_is_lacking(demand: Resources, lacks: str) -> None:
    made = plan(demand)
    assert not made.launches
    assert made.unplaced[0][1] == lacks


def test_no_offers_at_all_is_said_so() -> None:
    assert plan(Resources.of(1), offers=()).unplaced[0][1] == "the cloud has no offers"


def test_offers_are_asked_by_price_then_as_listed_and_an_unknown_price_is_the_dearest() -> None:
    offers = [offer("x", dollars=None), offer("c", dollars=2), offer("b", dollars=2), offer("a", dollars=9)]
    assert [o.name for o in cheapest_first(offers)] == ["c", "b", "a", "x"]


def test_an_offer_for_free_is_still_a_known_price() -> None:
    offers = [offer("unknown", dollars=None), offer("free", dollars=0)]
    assert [o.name for o in cheapest_first(offers)] == ["free", "unknown"]


def test_a_machine_that_runs_costs_what_its_offer_costs_now() -> None:
    task = Task("a", 0, Resources.of(1))
    runs = Rented("i-1", offer("small", 1, dollars=3), (task.key,))
    dearer = Situation((task,), (offer("small", 1, dollars=5),), (runs,))
    assert NoPacking().plan(dearer).cost == Money.of(5)
    gone = Situation((task,), (), (runs,))
    assert NoPacking().plan(gone).cost == Money.of(3)
