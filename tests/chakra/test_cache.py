"""Assumed, confirmed, given back: what is free is never more than it is."""

from __future__ import annotations

import dataclasses

from tests.chakra.builders import GPU, World, bound, node, placed, pod


def free(world: World, name: str = "n0") -> int:
    """GPUs."""
    return world.cache.node_infos[name].free.get(GPU, 0)


def test_a_decided_binding_counts_at_once():
    world = World(node())
    world.add(pod("a", 5), pod("b", 5))
    assert placed(world.binds()) == {"a": "n0"}
    assert free(world) == 3
    assert world.binds() == []


def test_the_watch_confirms_without_counting_twice():
    world = World(node())
    world.add(pod("a", 5))
    world.round()
    assert free(world) == 3
    assert not world.cache.assignments["uid-a"].assumed


def test_a_refused_binding_gives_the_room_back_and_the_pod_is_tried_again_later():
    world = World(node())
    world.add(pod("a", 5))
    [bind] = world.binds()
    assert world.planner.state.refused(bind, world.now) is None
    assert free(world) == 8
    assert world.binds() == []
    world.now += 1.0
    assert placed(world.binds()) == {"a": "n0"}


def test_pauses_after_refusals_double_up_to_ten_seconds():
    world = World(node())
    world.add(pod())
    pauses = []
    for _ in range(6):
        [bind] = world.binds()
        world.planner.state.refused(bind, world.now)
        until = world.planner.state.queue.next_wake()
        pauses.append(until - world.now)
        world.now = until
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_the_room_of_a_refused_binding_goes_to_who_waits_for_it():
    world = World(node())
    world.add(pod("a", 5), pod("b", 5, created_at=1.0))
    [bind] = world.binds()
    world.planner.state.refused(bind, world.now)
    assert placed(world.binds()) == {"b": "n0"}


def test_a_refusal_after_the_watch_said_bound_changes_nothing():
    world = World(node())
    world.add(pod("a", 5))
    [bind] = world.binds()
    world.add(bound(world.pods["uid-a"], "n0"))
    assert world.planner.state.refused(bind, world.now) is None
    assert free(world) == 3


def test_a_pod_that_another_scheduler_bound_counts_there():
    world = World(node("a"), node("b"))
    world.add(pod("p", 5))
    [bind] = world.binds()
    world.planner.state.found(bind, "b")
    assert (free(world, "a"), free(world, "b")) == (8, 3)
    world.add(bound(world.pods["uid-p"], "b"))
    assert (free(world, "a"), free(world, "b")) == (8, 3)


def test_deleted_and_finished_pods_free_their_room():
    world = World(node())
    world.add(bound(pod("a", 3), "n0"), bound(pod("b", 3), "n0"))
    world.remove(world.pods["uid-a"])
    assert free(world) == 5
    world.add(dataclasses.replace(world.pods["uid-b"], phase="Succeeded"))
    assert free(world) == 8


def test_a_pod_deleted_while_its_binding_is_under_way_frees_its_room_once():
    world = World(node())
    world.add(pod("a", 5))
    [bind] = world.binds()
    world.remove(world.pods["uid-a"])
    assert world.planner.state.refused(bind, world.now) is None
    assert free(world) == 8
    assert world.binds() == []


def test_a_pod_on_its_way_out_keeps_its_room_until_it_is_gone():
    world = World(node())
    world.add(bound(pod("a", 5), "n0"))
    world.add(dataclasses.replace(world.pods["uid-a"], deleting=True))
    assert free(world) == 3


def test_a_node_that_vanishes_and_comes_back_is_not_empty():
    world = World(node())
    world.add(bound(pod("a", 5), "n0"), pod("b", 5))
    world.planner.state.node_changed(node(), None)
    assert world.binds() == []
    assert world.reasons()["b"] == "0/0 nodes are available: there are none."
    world.planner.state.node_changed(None, node())
    assert free(world) == 3
    assert world.binds() == []


def test_pods_are_known_before_their_node_is():
    world = World()
    world.add(bound(pod("a", 5), "n0"))
    world.planner.state.node_changed(None, node())
    assert free(world) == 3


def test_a_node_lost_between_decision_and_binding_is_not_bound_to():
    world = World(node("a"))
    world.add(pod())
    [bind] = world.binds()
    assert world.planner.state.valid(bind)
    world.planner.state.node_changed(node("a"), node("a", ready=False))
    assert not world.planner.state.valid(bind)
    world.planner.state.node_changed(None, node("b"))
    assert world.planner.state.refused(bind, world.now, lost=True) is None
    assert placed(world.binds()) == {"p": "b"}


def test_a_node_that_shrank_between_decision_and_binding_is_not_bound_to():
    world = World(node())
    world.add(pod(gpus=8))
    [bind] = world.binds()
    world.planner.state.node_changed(node(), node(gpus=4))
    assert not world.planner.state.valid(bind)


def test_what_vanished_is_forgotten():
    world = World(node())
    world.add(pod("a", 5))
    world.round()
    world.remove(world.pods["uid-a"])
    world.planner.state.node_changed(node(), None)
    assert world.cache.node_infos == {}
    assert world.cache.assignments == {}
