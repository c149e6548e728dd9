"""Types of GPUs on Kubernetes: short names of users, long labels of GPU Feature Discovery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from starburst.clusters.kubernetes.manifest import job_object
from starburst.core.parts.capacity import Capacity
from starburst.kube import names
from starburst.kube.objects import NodeView
from starburst.policy.placement import first_fit
from starburst.runs.ports import Run
from tests.clusters.kubernetes.test_room import room
from tests.clusters.kubernetes.views import a_node
from tests.translator.manifests import job, read_one

PRODUCT = "nvidia.com/gpu.product"


def a_gpu_node(name: str, product: str) -> NodeView:
    return replace(a_node(name, **{"nvidia.com/gpu": 8, "memory": 2**40}), labels={PRODUCT: product})


NODES = (
    a_gpu_node("t4", "Tesla-T4"),
    a_gpu_node("a100-80", "NVIDIA-A100-SXM4-80GB"),
    a_gpu_node("a100-40", "NVIDIA-A100-SXM4-40GB-SHARED"),
    a_gpu_node("h100", "NVIDIA-H100-80GB-HBM3"),
)


def placed(manifest: dict[str, Any]) -> tuple[list[str], Any]:
    """The nodes that hold a submitted job, and the object that it becomes on the first of them."""
    found = read_one(manifest, native=True)
    nodes = room(*NODES).nodes()
    holds = [each.name for each in nodes if Capacity([each], first_fit).place(found.job)]
    slots = Capacity(nodes, first_fit).place(found.job)
    if slots is None:
        return holds, None
    run = Run(found.job, 1, slots, found.workload)
    return holds, job_object(
        run, namespace="default", controller="c", decision="", indexed=True, checkpoints=None
    )


@pytest.mark.parametrize(
    ("kinds", "nodes"),
    [
        ("A100", ["a100-40"]),
        ("A100-80GB", ["a100-80"]),
        ("A100,H100", ["a100-40", "h100"]),
        ("H200, a100-80gb", ["a100-80"]),
        ("H200,B200", []),
    ],
)
def test_short_names_fit_the_nodes_whose_long_labels_mean_them(kinds: str, nodes: list[str]) -> None:
    holds, made = placed(job("metadata|annotations", {"starburst.io/gpu-type": kinds}))
    assert holds == nodes
    if nodes:
        # The node is chosen here and named to Chakra: no label has to agree with the pod's own words.
        assert made["metadata"]["annotations"][names.NODES] == nodes[0]
        spec = made["spec"]["template"]["spec"]
        assert not {"nodeSelector", "affinity"} & spec.keys()


@pytest.mark.parametrize(
    ("selector", "nodes"),
    [
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3"}, ["h100"]),
        ({PRODUCT: "H100"}, []),
        ({"accelerator": "nvidia-h100-80gb"}, []),
    ],
)
def test_a_node_selector_fits_the_nodes_that_bear_its_very_label_as_for_kubelets(
    selector: dict[str, str], nodes: list[str]
) -> None:
    assert placed(job("POD/nodeSelector", selector))[0] == nodes
