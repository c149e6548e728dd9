"""Who has to leave for whom."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, cast

import pytest

from chakra_plugin.metrics import Metrics
from chakra_plugin.scheduler import ChakraScheduler
from chakra_plugin.scheduling.cycle import Cycle, SchedulerOptions
from starburst.kube import names
from starburst.kube.errors import ApiError
from tests.chakra.builders import World, bound, node, placed, pod


def running(name: str, gpus: int, at: str, priority: int = 0, **other):
    """A pod that is bound."""
    return bound(pod(name, gpus, priority=priority, **other), at)


def plan(world: World) -> Cycle:
    return world.planner.plan(world.now)


def victims(round_: Cycle) -> list[list[str]]:
    return [sorted(victim.name for victim in each.victims) for each in round_.preemptions]


@pytest.fixture
def world() -> World:
    return World(node("a", 4), node("b", 4), preempt=True)


def test_nobody_is_evicted_unless_asked_to():
    world = World(node("a", 4))
    world.add(running("low", 4, "a"), pod("high", 4, priority=9))
    assert not plan(world).preemptions


def test_the_least_important_and_the_fewest_have_to_leave(world):
    world.add(running("a1", 2, "a", 5), running("a2", 2, "a", 1))
    world.add(running("b1", 2, "b", 2), running("b2", 1, "b", 2), running("b3", 1, "b", 1))
    world.add(pod("high", 2, priority=9))
    assert victims(plan(world)) == [["a2"]]


def test_equals_are_not_evicted(world):
    world.add(running("a1", 4, "a", 9), running("b1", 4, "b", 9), pod("high", 2, priority=9))
    assert not plan(world).preemptions
    assert "Insufficient nvidia.com/gpu" in world.reasons()["high"]


def test_nor_for_a_pod_that_does_not_want_it(world):
    world.add(running("a1", 4, "a"), running("b1", 4, "b"), pod("high", 2, priority=9, preempts=False))
    assert not plan(world).preemptions


def test_what_starburst_placed_is_not_evicted(world):
    theirs = {names.JOB: "j"}
    world.add(running("a1", 4, "a", labels=theirs), running("b1", 4, "b", 1), pod("high", 4, priority=9))
    assert victims(plan(world)) == [["b1"]]


def test_nobody_is_evicted_beside_one_of_a_namespace_that_is_not_chakras():
    world = World(node("a", 4), node("b", 4), preempt=True, namespaces=frozenset({"ns"}))
    world.add(running("a1", 2, "a"), running("a2", 2, "a", namespace="others"), running("b1", 4, "b", 1))
    world.add(pod("high", 4, priority=9))
    assert victims(plan(world)) == [["b1"]], "else a1 ends for nothing: a2 cannot be deleted"


def test_nobody_is_evicted_where_that_would_not_help(world):
    world.add(running("a1", 3, "a"), running("a2", 1, "a", 9), running("b1", 4, "b"))
    world.add(pod("high", 4, priority=5))
    assert victims(plan(world)) == [["b1"]]


def test_the_room_is_kept_until_the_victims_are_gone(world):
    world.add(running("a1", 4, "a"), running("b1", 4, "b", 1), pod("high", 4, priority=9))
    [preemption] = plan(world).preemptions
    assert preemption.node == "a"
    world.add(dataclasses.replace(world.pods["uid-a1"], deleting=True))
    world.add(pod("low", 1), pod("higher", 1, priority=1, preempts=False))
    assert placed(world.binds()) == {}
    world.remove(world.pods["uid-a1"])
    assert placed(world.binds()) == {"high": "a"}


def test_a_more_important_pod_may_take_kept_room(world):
    world.add(running("a1", 4, "a"), running("b1", 4, "b", 20), pod("high", 4, priority=9))
    plan(world)
    world.remove(world.pods["uid-a1"])
    world.add(pod("highest", 4, priority=10))
    assert placed(world.binds()) == {"highest": "a"}


def test_one_preemption_is_enough(world):
    world.add(running("a1", 4, "a"), running("b1", 4, "b", 1), pod("high", 4, priority=9))
    assert len(plan(world).preemptions) == 1
    for _ in range(3):
        world.planner.state.node_changed(None, node(f"new{world.now}", 0))
        world.now += 1
        assert not plan(world).preemptions


def test_after_a_restart_those_who_leave_already_are_enough(world):
    world.add(running("a1", 4, "a", deleting=True), running("b1", 4, "b"), pod("high", 4, priority=9))
    assert victims(plan(world)) == [[]]


def test_many_of_one_shape_preempt_in_one_round(world):
    world.add(running("a1", 4, "a"), running("b1", 4, "b"))
    world.add(*(pod(f"high{i}", 4, priority=9) for i in range(3)))
    assert sorted(victims(plan(world))) == [["a1"], ["b1"]]
    world.remove(world.pods["uid-a1"], world.pods["uid-b1"])
    assert sorted(placed(world.binds()).values()) == ["a", "b"]


def test_a_victim_that_cannot_be_deleted_is_none_any_more(world):
    world.add(running("a1", 4, "a"), running("b1", 4, "b", 1), pod("high", 4, priority=9))
    [preemption] = plan(world).preemptions
    world.planner.state.victim_spared(preemption, preemption.victims[0])
    assert victims(plan(world)) == [["b1"]]


def test_where_one_victim_cannot_be_deleted_those_after_it_stay():
    class Guarded:
        """A server that lets nobody delete the second."""

        def __init__(self) -> None:
            self.deleted: list[str] = []

        async def patch(self, *_args: object, **_more: object) -> None:
            return

        async def delete(self, _of: object, _namespace: str, name: str, **_more: object) -> None:
            if name == second:
                raise ApiError(403, "Forbidden", "a policy guards it")
            self.deleted.append(name)

    api = Guarded()
    scheduler = ChakraScheduler(cast("Any", api), SchedulerOptions(preempt=True), Metrics())
    world = World(node("a", 3), preempt=True)
    world.planner = scheduler.planner
    world.planner.state.node_changed(None, node("a", 3))
    world.add(*(running(f"low{number}", 1, "a") for number in range(3)), pod("high", 3, priority=9))
    [preemption] = plan(world).preemptions
    first, second, third = (victim.name for victim in preemption.victims)
    asyncio.run(scheduler._evict(preemption))
    assert api.deleted == [first]
    assert not world.planner.state.is_leaving(world.pods[f"uid-{third}"])


def test_a_preemptor_whose_node_vanished_looks_for_another(world):
    world.add(running("a1", 4, "a"), running("b1", 4, "b", 1), pod("high", 4, priority=9))
    assert plan(world).preemptions[0].node == "a"
    world.planner.state.node_changed(node("a", 4), None)
    assert victims(plan(world)) == [["b1"]]


def test_a_preemptor_that_is_deleted_keeps_no_room(world):
    world.add(running("a1", 4, "a"), running("b1", 4, "b", 20), pod("high", 4, priority=9))
    plan(world)
    world.remove(world.pods["uid-a1"], world.pods["uid-high"])
    world.add(pod("low", 4))
    assert placed(world.binds()) == {"low": "a"}
