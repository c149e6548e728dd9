"""Whose turn it is, and who is not tried in vain."""

from __future__ import annotations

import pytest

import chakra_plugin.scheduling.filters
from tests.chakra.builders import World, bound, node, placed, pod


def test_priority_goes_before_age_and_age_before_the_rest():
    world = World(node(gpus=1))
    world.add(
        pod("young", 1, created_at=3.0),
        pod("old", 1, created_at=1.0),
        pod("important", 1, created_at=5.0, priority=7),
    )
    order = []
    for _ in range(3):
        [(name, _)] = world.round().items()
        order.append(name)
        world.remove(world.pods[f"uid-{name}"])
    assert order == ["important", "old", "young"]


def test_what_does_not_fit_is_overtaken():
    world = World(node(gpus=4))
    world.add(pod("big", 8, created_at=1.0), pod("small", 1, created_at=2.0))
    assert world.round() == {"small": "n0"}


def test_pods_alike_are_tried_once_in_a_round(monkeypatch):
    world = World(*(node(f"n{i}", 1) for i in range(3)))
    world.add(*(pod(f"p{i}", 2) for i in range(100)))
    assert world.planner.plan(world.now).failed == 1
    assert len(world.reasons()) == 100


def test_an_unschedulable_pod_is_not_tried_again_before_something_may_help_it():
    world = World(node("full", 2), node("cpu", 0))
    world.add(bound(pod("a", 2), "full"), bound(pod("b"), "cpu"), pod("p", 2))
    world.round()
    world.remove(world.pods["uid-b"])
    world.add(pod("other", 8))
    assert world.planner.plan(world.now).failed == 1, "only the new one was tried"
    world.remove(world.pods["uid-a"])
    assert world.round() == {"p": "full"}


@pytest.mark.parametrize(
    "helps",
    [
        lambda world: world.planner.state.node_changed(node(), node(labels={"zone": "a"})),
    ],
)
def test_new_and_changed_nodes_help(helps):
    world = World(node())
    world.add(pod(selector=(("zone", "a"),)))
    assert world.round() == {}
    helps(world)
    world.planner.state.node_changed(None, node("zone-a", labels={"zone": "a"}))
    assert "p" in world.round()


def test_what_is_said_keeps_up_with_the_nodes():
    world = World(node("a", 1))
    world.add(pod(gpus=9))
    world.round()
    world.planner.state.node_changed(None, node("b", 1, ready=False))
    world.round()
    assert world.reasons()["p"] == (
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were not ready."
    )


def test_the_status_of_a_node_that_says_nothing_new_wakes_nobody():
    world = World(node())
    world.add(pod(gpus=9))
    world.round()
    world.planner.state.node_changed(node(), node())
    assert world.planner.plan(world.now).failed == 0


def test_a_round_stops_at_its_limit_and_the_next_goes_on():
    world = World(node(pods=10))
    world.add(*(pod(f"p{i}") for i in range(5)))
    assert len(world.planner.plan(world.now, limit=2).binds) == 2
    assert len(world.planner.plan(world.now, limit=2).binds) == 2
    assert len(world.planner.plan(world.now, limit=2).binds) == 1


def test_pods_of_other_schedulers_are_left_alone():
    world = World(node())
    world.add(pod("a", scheduler="default-scheduler"), pod("b", deleting=True))
    assert world.round() == {}
    assert world.reasons() == {}


def test_a_round_costs_changes_and_shapes_and_not_pods_times_nodes(monkeypatch):
    looked = 0
    fits = chakra_plugin.scheduling.filters.fits

    def counting(*args, **kwargs):
        nonlocal looked
        looked += 1
        return fits(*args, **kwargs)

    monkeypatch.setattr(chakra_plugin.scheduling.filters, "fits", counting)
    world = World(*(node(f"n{i}") for i in range(50)))
    world.add(*(pod(f"p{i}", i % 2) for i in range(400)))
    assert len(placed(world.binds())) == 400
    assert looked < 400 * 50 / 10
