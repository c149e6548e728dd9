"""Starburst's word: held until it names nodes, then bound to these by rank."""

from __future__ import annotations

import dataclasses

import pytest

from starburst.kube import names
from starburst.kube.objects import read_pod
from tests.chakra.builders import World, bound, job, node, owned, placed, pod


def told(world: World, old, **change) -> object:
    """A Job changes."""
    new = dataclasses.replace(old, **change)
    world.planner.state.job_changed(old, new, world.now)
    return new


def managed(name: str = "j", **other) -> object:
    """A Job that Starburst has taken."""
    return job(name, labels={names.JOB: name}, **other)


@pytest.fixture
def world() -> World:
    return World(node("a"), node("b"))


@pytest.mark.parametrize("label", [names.QUEUE, names.JOB])
def test_a_managed_pod_is_held_until_nodes_are_named(world, label):
    world.add(pod("p", labels={label: "x"}))
    assert world.round() == {}
    assert world.reasons() == {"p": "held for Starburst, which decides when and where it runs"}
    world.add(pod("p", labels={label: "x"}, nodes="b"))
    [bind] = world.binds()
    assert (bind.node, bind.rank) == ("b", 0)


def test_so_is_a_pod_of_a_managed_job(world):
    waiting = managed(nodes="")
    world.planner.state.job_changed(None, waiting, world.now)
    world.add(owned(waiting, "p"))
    assert world.round() == {}
    told(world, waiting, annotations={names.NODES: "b"})
    assert world.round() == {"p": "b"}


def test_a_pod_waits_until_its_job_is_known(world):
    named = managed(nodes="b")
    world.add(owned(named, "p"))
    assert world.round() == {}
    assert world.reasons() == {}
    world.planner.state.job_changed(None, named, world.now)
    assert world.round() == {"p": "b"}


def test_a_pod_of_a_job_that_starburst_does_not_know_is_chakras_own(world):
    world.planner.state.job_changed(None, job(), world.now)
    world.add(owned(job(), "p"))
    assert world.round() == {"p": "a"}


def test_ranks_go_to_the_named_nodes_in_order(world):
    three = managed(nodes="a,a,b")
    world.planner.state.job_changed(None, three, world.now)
    world.add(*(owned(three, f"p{i}", gpus=4) for i in range(3)))
    assert [(bind.node, bind.rank) for bind in world.binds()] == [("a", 0), ("a", 1), ("b", 2)]


def test_no_annotation_of_a_user_ends_the_scheduler(world):
    digits = "9" * 5000
    index = {"batch.kubernetes.io/job-completion-index": digits}
    world.add(pod("p", nodes="a", annotations=index))
    world.add(bound(pod("q", annotations={names.RANK: digits}), "b"))
    assert world.round() == {"p": "a"}


def test_a_completion_index_is_the_rank(world):
    two = managed(nodes="a,b")
    world.planner.state.job_changed(None, two, world.now)
    index = {"batch.kubernetes.io/job-completion-index": "1"}
    world.add(owned(two, "p", annotations=index))
    [bind] = world.binds()
    assert (bind.node, bind.rank) == ("b", 1)


def test_a_failed_pods_rank_is_free_again_and_a_succeeded_ones_is_not(world):
    three = managed(nodes="a,b,a")
    world.planner.state.job_changed(None, three, world.now)
    world.add(*(owned(three, f"p{i}") for i in range(3)))
    world.round()
    world.add(dataclasses.replace(world.pods["uid-p0"], phase="Succeeded"))
    world.add(dataclasses.replace(world.pods["uid-p1"], phase="Failed"))
    world.add(owned(three, "again"))
    [bind] = world.binds()
    assert (bind.node, bind.rank) == ("b", 1)


def test_the_next_completion_gets_the_node_that_an_earlier_one_has_left(world):
    two = managed(nodes="a,b")
    world.planner.state.job_changed(None, two, world.now)
    world.add(*(owned(two, f"p{i}") for i in range(3)))
    assert world.round() == {"p0": "a", "p1": "b"}
    world.add(dataclasses.replace(world.pods["uid-p1"], phase="Succeeded"))
    [bind] = world.binds()
    assert (bind.node, bind.rank) == ("b", 2)


def test_ranks_are_remembered_over_a_restart(world):
    two = managed(nodes="a,b")
    world.planner.state.job_changed(None, two, world.now)
    world.add(bound(owned(two, "before"), "a", rank=0), owned(two, "p"))
    [bind] = world.binds()
    assert (bind.node, bind.rank) == ("b", 1)


def test_no_pod_gets_a_rank_beyond_the_nodes(world):
    one = managed(nodes="a")
    world.planner.state.job_changed(None, one, world.now)
    world.add(owned(one, "p0"), owned(one, "p1"))
    assert world.round() == {"p0": "a"}
    assert world.reasons() == {"p1": "starburst.io/nodes names 1 node(s), none for rank 1."}
    world.remove(world.pods["uid-p0"])
    assert world.round() == {"p1": "a"}


def test_a_named_node_must_pass_all_filters_and_no_other_will_do(world):
    world.add(bound(pod("full", 8), "b"), pod("p", 1, nodes="b"))
    assert world.round() == {}
    assert world.reasons() == {
        "p": "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, "
        "1 node(s) weren't b, which starburst.io/nodes names for rank 0."
    }
    world.remove(world.pods["uid-full"])
    assert world.round() == {"p": "b"}


def test_a_named_node_that_does_not_exist_is_waited_for(world):
    world.add(pod("p", nodes="c"))
    assert world.round() == {}
    assert "2 node(s) weren't c" in world.reasons()["p"]
    world.planner.state.node_changed(None, node("c"))
    assert world.round() == {"p": "c"}


def test_a_binding_is_not_sent_when_the_nodes_were_changed_meanwhile(world):
    one = managed(nodes="a")
    world.planner.state.job_changed(None, one, world.now)
    world.add(owned(one, "p"))
    [bind] = world.binds()
    assert world.planner.state.valid(bind)
    told(world, one, annotations={names.NODES: "b"})
    assert not world.planner.state.valid(bind)
    world.planner.state.refused(bind, world.now, lost=True)
    assert placed(world.binds()) == {"p": "b"}


def test_a_directive_goes_before_a_gang(world):
    world.add(pod("p", nodes="b", gang="g/4"))
    assert world.round() == {"p": "b"}


def test_a_job_of_another_api_group_is_no_job_to_wait_for(world):
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "j",
        "uid": "u",
        "controller": True,
    }
    metadata = {"namespace": "ns", "name": "p", "uid": "uid-p", "ownerReferences": [owner]}
    world.add(read_pod({"metadata": metadata, "spec": {"schedulerName": "chakra"}}))
    assert world.round() == {"p": "a"}
