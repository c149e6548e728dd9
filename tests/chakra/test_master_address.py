"""The address of a gang's first pod: the others are bound once it is known, and have it in an annotation."""

from __future__ import annotations

import dataclasses

from chakra_plugin.binder import binding
from chakra_plugin.scheduling.cycle import Bind
from starburst.kube import names
from starburst.kube.objects import PodView, read_pod
from tests.chakra.builders import World, bound, job, node, owned

ASKS = {names.MASTER_ADDR: ""}


def world_of(size: int = 3) -> tuple[World, list[PodView]]:
    """A Job of Starburst with a pod of each rank, all on one node of 8 GPUs."""
    world, train = World(node("a")), job("train", nodes=",".join(["a"] * size))
    world.planner.state.job_changed(None, train, world.now)
    pods = [owned(train, f"p{rank}", gpus=2, annotations=ASKS, hostname=f"p{rank}") for rank in range(size)]
    world.add(*pods)
    return world, pods


def first_runs(world: World, bind: Bind, address: str) -> None:
    """The first pod is bound, and has an address."""
    world.planner.state.bound(bind)
    world.add(dataclasses.replace(bound(bind.pod, bind.node, bind.rank), address=address))


def told(bind: Bind) -> dict[str, str]:
    """The annotations that a binding writes."""
    found: dict[str, str] = binding(bind)["metadata"]["annotations"]
    return found


def test_the_first_is_bound_alone_and_the_others_once_it_has_an_address() -> None:
    world, pods = world_of()
    [first] = world.binds()
    assert told(first) == {names.RANK: "0", names.MASTER_ADDR: first.pod.name}
    assert world.binds() == []
    first_runs(world, first, "10.0.0.7")
    others = world.binds()
    assert [told(bind) for bind in others] == [
        {names.RANK: str(rank), names.MASTER_ADDR: "10.0.0.7"} for rank in (1, 2)
    ]
    assert {bind.pod.uid for bind in (first, *others)} == {pod.uid for pod in pods}


def test_the_others_have_their_places_meanwhile() -> None:
    world, _ = world_of(4)
    world.binds()
    assert world.cache.node_infos["a"].free["nvidia.com/gpu"] == 0


def test_a_restarted_scheduler_finds_the_address_on_the_first() -> None:
    _, pods = world_of()
    again, train = World(node("a")), job("train", nodes="a,a,a")
    again.planner.state.job_changed(None, train, again.now)
    again.add(dataclasses.replace(bound(pods[0], "a", 0), address="10.0.0.7"), *pods[1:])
    assert [bind.master for bind in again.binds()] == ["10.0.0.7"] * 2


def test_a_pod_that_is_deleted_while_it_waits_for_the_address_leaves_nothing_behind() -> None:
    world, pods = world_of(2)
    [first] = world.binds()
    other = next(pod for pod in pods if pod.uid != first.pod.uid)
    world.remove(other)
    [void] = world.binds()
    assert not world.planner.state.valid(void)
    assert world.planner.state.refused(void, world.now, lost=True) is None
    assert world.planner.state.without_master == []
    assert world.cache.node_infos["a"].free["nvidia.com/gpu"] == 6


def test_a_first_that_is_not_bound_after_all_is_the_first_again() -> None:
    world, _ = world_of(2)
    [first] = world.binds()
    assert world.planner.state.refused(first, world.now) is None
    world.now += 1
    [again] = world.binds()
    assert (again.pod.uid, again.rank) == (first.pod.uid, 0)


def test_of_a_completed_first_the_address_counts_as_well() -> None:
    world, _ = world_of(2)
    [first] = world.binds()
    ended = dataclasses.replace(bound(first.pod, "a", 0), address="10.0.0.7", phase="Succeeded")
    world.add(ended)
    assert [bind.master for bind in world.binds()] == ["10.0.0.7"]


def test_pods_that_do_not_ask_are_bound_at_once() -> None:
    world, train = World(node("a")), job("train", nodes="a,a")
    world.planner.state.job_changed(None, train, world.now)
    world.add(owned(train, "p0"), owned(train, "p1"))
    assert [told(bind) for bind in world.binds()] == [{names.RANK: "0"}, {names.RANK: "1"}]


def test_on_the_network_of_its_node_the_first_calls_itself_as_that_does() -> None:
    named = {"metadata": {"namespace": "ns", "name": "p", "uid": "u"}, "status": {"podIP": "10.0.0.7"}}
    of_pod, of_node = ({"hostNetwork": hosts, "hostname": "own"} for hosts in (False, True))
    assert read_pod({**named, "spec": of_pod}).hostname == "own"
    assert read_pod({**named, "spec": of_node}).hostname == ""
    assert read_pod({**named, "spec": {}}).hostname == "p"
    assert read_pod({**named, "spec": {}}).address == "10.0.0.7"
