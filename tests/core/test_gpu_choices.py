"""Jobs that take GPUs of any of several types: where they run, what is rented, and what they are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from starburst.core.model.actions import Slot
from starburst.core.model.events import NodesChanged
from starburst.core.parts.capacity import Capacity
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.core.views.satisfiability import satisfiability
from starburst.domain.job import Job
from starburst.domain.resources import NOTHING, Resources
from starburst.policy.packing.registry import PACKERS
from starburst.policy.placement import first_fit
from tests.builders import Desk, job, launches, node, offer, snapshot

EITHER = "A100 or H100"
V100, A100, H100 = (node(kind.lower(), 8, gpu_type=kind) for kind in ("V100", "A100", "H100"))
OFFERS = (
    offer("v", 8, 1, gpu_type="V100"),
    offer("h", 8, 4, gpu_type="H100"),
    offer("a", 8, 3, gpu_type="A100"),
)


def desk_of(*nodes: Any, **settings: Any) -> Desk:
    desk = Desk(**settings)
    desk.tell(NodesChanged(nodes))
    return desk


def wishing(name: str, *gpus: int, kinds: str = EITHER, **more: Any) -> Job:
    return job(name, gang=gpus, gpu_type=kinds, **more)


def test_any_of_its_types_will_do_at_home() -> None:
    desk = desk_of(V100, A100, H100)
    desk.submit(wishing("x", 8), wishing("y", 8), wishing("z", 8, cloud="never"))
    assert (desk.nodes_of("x"), desk.nodes_of("y"), desk.phase("z")) == (["a100"], ["h100"], "queued")


def test_the_gpus_of_a_gang_are_of_one_type() -> None:
    desk = desk_of(A100, H100, node("h100-1", 8, gpu_type="H100"))
    desk.submit(wishing("pair", 8, 8))
    assert desk.nodes_of("pair") == ["h100", "h100-1"]
    mixed = desk_of(A100, H100)
    mixed.submit(wishing("pair", 8, 8, cloud="never"), job("any", gang=(8, 8), cloud="never"))
    assert (mixed.phase("pair"), mixed.nodes_of("any")) == ("queued", ["a100", "h100"])


def test_a_task_of_a_gang_without_gpus_goes_anywhere() -> None:
    desk = desk_of(node("plain", 0), H100)
    desk.submit(wishing("driver", 0, 8))
    assert desk.nodes_of("driver") == ["plain", "h100"]


@pytest.mark.parametrize("packer", PACKERS)
def test_the_cheapest_of_its_types_is_rented(packer: str) -> None:
    desk = Desk(offers=OFFERS, packer=packer)
    assert launches(desk.submit(wishing("x", 8, cloud="only"))) == ["a"]
    assert launches(desk.submit(wishing("dear", 8, kinds="H100 or B200", cloud="only"))) == ["h"]


def test_a_gang_gets_machines_of_the_cheapest_type() -> None:
    desk = Desk(offers=OFFERS)
    assert launches(desk.submit(wishing("pair", 8, 8, cloud="only"))) == ["a"]
    assert [machine.offer.title for machine in desk.scheduler.state.fleet.instances.values()] == ["2 × a"]


def test_who_waits_for_one_of_them_is_told_all() -> None:
    desk = desk_of(V100, A100, offers=())
    desk.submit(wishing("first", 8), wishing("second", 8))
    assert "waits for 8 A100 or H100 GPUs" in explain(desk.scheduler.state, desk["second"], str).sentence


def test_where_nobody_has_any_of_them_the_reason_names_all() -> None:
    desk = desk_of(V100, offers=OFFERS[:1])
    desk.submit(wishing("x", 8))
    said = satisfiability(desk.scheduler.state, desk["x"].job).lacks
    assert said == "no node or offer has GPUs of type A100 or H100 (there are V100)"
    assert "no offer has A100 or H100 GPUs" in explain(desk.scheduler.state, desk["x"], str).sentence


@pytest.mark.parametrize(("ending", "nodes"), [(("h0", "h1"), ("h0", "h1")), (("a", "h0"), ())])
def test_room_that_ends_of_runs_make_is_of_one_type_too(
    ending: tuple[str, ...], nodes: tuple[str, ...]
) -> None:
    capacity = Capacity(
        [node("a", 8, gpu_type="A100"), *(replace(H100, name=f"h{n}") for n in (0, 1))], first_fit
    )
    runs = {name: Slot(0, name, Resources.of(8)) for name in ("a", "h0", "h1")}
    capacity.take(runs.values())
    freed = {name: runs[name].resources for name in ending}
    assert capacity.would_hold(wishing("pair", 8, 8), lambda name: freed.get(name, NOTHING)) == nodes


def test_it_is_the_same_job_after_a_restart() -> None:
    desk = desk_of(H100)
    desk.submit(wishing("x", 8))
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert again.state.jobs["x"].job.tasks == desk["x"].job.tasks
