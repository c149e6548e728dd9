"""Pods go to nodes that declare the features they need, for the core and for Chakra (Kubernetes 1.35)."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.kube.objects import read_node, read_pod
from tests.chakra.builders import World
from tests.kube_unit.samples import a_pod

RESTART_ALL = "RestartAllContainersOnContainerExits"
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
NEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "a container restarts all": (
        RESTART_ALL,
        {"containers": [{"name": "main", "restartPolicyRules": RULES}]},
    ),
    "an init container does": (RESTART_ALL, {"initContainers": [{"name": "i", "restartPolicyRules": RULES}]}),
    "user namespaces on the host's network": (
        "UserNamespacesHostNetworkSupport",
        {"hostNetwork": True, "hostUsers": False},
    ),
    "limits of a container's processes": (
        "ContainerUlimits",
        {"containers": [{"name": "main", "securityContext": {"ulimits": [{"name": "nofile", "soft": 1}]}}]},
    ),
}
LIKE_THEM: dict[str, dict[str, Any]] = {
    "one container is restarted": {
        "containers": [{"name": "main", "restartPolicyRules": [{**RULES[0], "action": "Restart"}]}]
    },
    "host network alone": {"hostNetwork": True},
    "user namespaces alone": {"hostUsers": False},
    "host's users on its network": {"hostNetwork": True, "hostUsers": True},
}


def a_node(*features: str, **labels: str) -> Any:
    """A node as a server of 1.36 stores it."""
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": allocatable, "conditions": conditions, "declaredFeatures": list(features)}
    return {"metadata": {"name": "n", "uid": "n", "labels": labels}, "status": status}


def pending(**spec: Any) -> Any:
    """A pod for Chakra."""
    return a_pod(metadata={"uid": "p"}, spec={"schedulerName": "chakra", **spec}, status={"phase": "Pending"})


@pytest.mark.parametrize("name", NEEDS)
def test_a_node_without_the_feature_is_left_out_by_both(name: str) -> None:
    feature, spec = NEEDS[name]
    pod = read_pod(pending(**spec))
    for features, fits in (((), False), (("GuaranteedQoSPodCPUResize",), False), ((feature, "Other"), True)):
        node = read_node(a_node(*features))
        assert pod.rules.admits(node.name, node.labels, node.taints) is fits
        world = World(node)
        world.add(pod)
        assert bool(world.round()) is fits
        if not fits:
            why = f"0/1 nodes are available: 1 node(s) didn't declare the features {feature}."
            assert list(world.reasons().values()) == [why]


@pytest.mark.parametrize("name", LIKE_THEM)
def test_pods_that_need_none_go_to_any_node(name: str) -> None:
    node = read_node(a_node())
    assert read_pod(pending(**LIKE_THEM[name])).rules.admits(node.name, node.labels, node.taints)


def test_features_come_on_top_of_node_affinity() -> None:
    expressions = [{"key": "zone", "operator": "In", "values": ["a"]}]
    _, spec = NEEDS["user namespaces on the host's network"]

    def admits(terms: list[Any], node: Any) -> bool:
        selector = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        view = read_node(node)
        pod = read_pod(pending(**spec, affinity={"nodeAffinity": selector}))
        return pod.rules.admits(view.name, view.labels, view.taints)

    has = "UserNamespacesHostNetworkSupport"
    wanted = {"matchExpressions": expressions}
    assert admits([wanted], a_node(has, zone="a"))
    assert not admits([wanted], a_node(has, zone="b"))
    assert not admits([wanted], a_node(zone="a"))
    assert not admits([{}], a_node(has)), "an empty term matches no node"
    assert admits([{}, wanted], a_node(has, zone="a"))
