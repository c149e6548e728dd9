"""What keeps a pod off a node, in kube-scheduler's words."""

from __future__ import annotations

import pytest

from starburst.domain.constraints import Requirement, Rules, Toleration
from tests.chakra.builders import GPU, World, bound, node, pod, taint

ZONE_A = Rules(affinity=((Requirement("zone", "In", ("a",)),),))


def test_every_reason_is_counted_as_kube_scheduler_counts_it():
    nodes = [node(f"small{i}", 1) for i in range(2)]
    nodes += [node(f"tainted{i}", taints=(taint("team", "ml"),)) for i in range(3)]
    world = World(*nodes)
    world.add(pod("p", 2))
    assert world.round() == {}
    assert world.reasons()["p"] == (
        "0/5 nodes are available: 2 Insufficient nvidia.com/gpu, "
        "3 node(s) had taint {team: ml}, that the pod didn't tolerate."
    )


@pytest.mark.parametrize(
    ("there", "asked", "reason"),
    [
        (node(schedulable=False), pod(), "node(s) were unschedulable"),
        (node(ready=False), pod(), "node(s) were not ready"),
        (node(), pod(selector=(("zone", "a"),)), "node(s) didn't match Pod's node affinity/selector"),
        (node(), pod(rules=ZONE_A), "node(s) didn't match Pod's node affinity/selector"),
        (node(taints=(taint("x"),)), pod(), "node(s) had taint {x: }, that the pod didn't tolerate"),
        (node(cpus=1), pod(cpus=2), "Insufficient cpu"),
        (node(pods=0), pod(), "Too many pods"),
        (node(gpus=0), pod(gpus=1), "Insufficient nvidia.com/gpu"),
        (node(), pod(requests={"example.com/fpga": 1}), "Insufficient example.com/fpga"),
        (node(), pod(unsupported=("spec.resourceClaims",)), "unsupported demand spec.resourceClaims"),
    ],
)
def test_each_filter_says_what_is_in_the_way(there, asked, reason):
    world = World(there)
    world.add(asked)
    assert world.round() == {}
    assert world.reasons() == {"p": f"0/1 nodes are available: 1 {reason}."}


def test_all_that_there_is_too_little_of_is_named():
    world = World(node(gpus=1, cpus=1))
    world.add(pod(gpus=2, cpus=2))
    world.round()
    assert world.reasons()["p"] == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu."
    )


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        (node(labels={"zone": "a"}), pod(selector=(("zone", "a"),))),
        (node(labels={"zone": "a"}), pod(rules=ZONE_A)),
        (node(taints=(taint("x"),)), pod(rules=Rules(tolerations=(Toleration("x", "Exists"),)))),
        (node(schedulable=False), pod(rules=Rules(tolerations=(Toleration(operator="Exists"),)))),
        (node(cpus=1), pod(requests={"cpu": 1000, "pods": 1, GPU: 0})),
    ],
)
def test_what_is_asked_for_and_there_is_no_obstacle(there, asked):
    world = World(there)
    world.add(asked)
    assert world.round() == {"p": "n0"}


def test_a_host_port_is_given_once_per_node():
    world = World(node("a"), node("b"))
    world.add(*(pod(f"p{i}", host_ports=("TCP/80",)) for i in range(3)))
    assert sorted(world.round().values()) == ["a", "b"]
    assert world.reasons() == {
        "p2": "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    }
    world.remove(next(view for view in world.pods.values() if view.node == "b"))
    assert world.round() == {"p2": "b"}


def test_pods_of_other_schedulers_take_room_too():
    world = World(node())
    world.add(bound(pod("theirs", 7, scheduler="default-scheduler"), "n0"), pod("p", 2))
    assert world.round() == {}


def test_no_nodes_at_all():
    world = World()
    world.add(pod())
    assert world.round() == {}
    assert world.reasons() == {"p": "0/0 nodes are available: there are none."}
