"""Which node a task goes to, and that ties go to the node that comes first."""

from __future__ import annotations

import pytest

from starburst.core.model.actions import Slot
from starburst.core.parts.capacity import Capacity
from starburst.domain.resources import Resources
from starburst.policy.placement import PLACEMENTS
from tests.builders import job, node, nodes


def cluster(placement: str, *free: int) -> Capacity:
    """Nodes of 8 GPUs with this many free."""
    capacity = Capacity(nodes(*(8 for _ in free)), PLACEMENTS[placement])
    capacity.take(Slot(0, f"n{rank}", Resources(8 - gpus)) for rank, gpus in enumerate(free))
    return capacity


@pytest.mark.parametrize(
    ("placement", "chosen"), [("first-fit", "n1"), ("best-fit", "n2"), ("worst-fit", "n3"), ("tetris", "n3")]
)
def test_a_task_of_two_gpus_among_nodes_with_1_4_2_and_8_free(placement: str, chosen: str) -> None:
    (slot,) = cluster(placement, 1, 4, 2, 8).place(job(gpus=2))
    assert slot.where == chosen


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_ties_go_to_the_node_that_comes_first(placement: str) -> None:
    (slot,) = cluster(placement, 1, 4, 4, 4).place(job(gpus=2))
    assert slot.where == "n1"


def test_best_and_worst_fit_break_ties_of_gpus_by_cpus() -> None:
    pair = (node("wide", 8, cpus=64), node("narrow", 8, cpus=32))
    assert Capacity(pair, PLACEMENTS["best-fit"]).place(job())[0].where == "narrow"
    assert Capacity(pair, PLACEMENTS["worst-fit"]).place(job())[0].where == "wide"


def test_tetris_gives_a_cpu_heavy_task_the_node_with_idle_cpus() -> None:
    pair = (node("gpus", 8, cpus=16), node("cpus", 4, cpus=64))
    capacity = Capacity(pair, PLACEMENTS["tetris"])
    capacity.take([Slot(0, "gpus", Resources.of(0, 13)), Slot(0, "cpus", Resources.of(3, 0))])
    assert capacity.place(job(gpus=0, cpus=2))[0].where == "cpus"
    assert capacity.place(job(gpus=1))[0].where == "gpus"


def test_tetris_minds_no_resource_that_a_node_does_not_have() -> None:
    capacity = Capacity((node("bare", 0),), PLACEMENTS["tetris"])
    assert capacity.place(job(gpus=0, cpus=1))[0].where == "bare"
