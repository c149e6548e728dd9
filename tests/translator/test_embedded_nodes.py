"""Node selectors and node affinity on the embedded cluster: both fit the nodes whose labels they name."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from starburst.app.config import parse_config
from starburst.core.parts.capacity import Capacity
from starburst.policy.placement import first_fit
from tests.translator.manifests import job, read_one
from translator.embedded_nodes import node_labels

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PRODUCT = "nvidia.com/gpu.product"
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
NODES = parse_config(
    {
        "cluster": {
            "nodes": [
                {"name": "v", "gpus": 4, "gpu_type": "V100"},
                {"name": "a", "gpus": 8, "gpu_type": "NVIDIA-A100-SXM4-80GB", "labels": {"disk": "ssd"}},
                {
                    "name": "old",
                    "gpus": 1,
                    "labels": {"accelerator": "nvidia-tesla-k80", "beta.kubernetes.io/instance-type": "p2"},
                },
                {"name": "plain", "labels": {PRODUCT: "none-of-it"}},
            ]
        }
    },
    "x.yaml",
).cluster.known_nodes()


def selecting(**labels: str) -> dict[str, Any]:
    return job("POD/nodeSelector", labels)


def requiring(key: str, operator: str, *values: str, field: str = "matchExpressions") -> dict[str, Any]:
    term = {field: [{"key": key, "operator": operator, **({"values": [*values]} if values else {})}]}
    return job(f"POD/affinity/nodeAffinity/{REQUIRED}", {"nodeSelectorTerms": [term]})


def fitting(manifest: dict[str, Any], gpus: int = 1) -> str:
    """The names of the nodes that hold the job."""
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": gpus} if gpus else {"cpu": 1}}
    found = read_one(manifest).job
    return " ".join(node.name for node in NODES if Capacity([node], first_fit).place(found))


@pytest.mark.parametrize(
    ("label", "value", "names"),
    [
        (PRODUCT, "Tesla-V100-SXM2-16GB", "v"),
        (PRODUCT, "NVIDIA-A100-SXM4-80GB", "a"),
        (PRODUCT, "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", ""),
        (PRODUCT, "NVIDIA-H100", ""),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-v100", "v"),
        ("karpenter.k8s.aws/instance-gpu-name", "a100-80gb", "a"),
        ("nvidia.com/gpu.count", "4", "v"),
        ("kubernetes.io/hostname", "a", "a"),
        ("kubernetes.io/hostname", "A", ""),
        ("kubernetes.io/os", "linux", "v a old"),
        ("beta.kubernetes.io/os", "windows", ""),
        ("kubernetes.io/arch", MACHINE, "v a old"),
        ("beta.kubernetes.io/arch", MACHINE, "v a old"),
        ("kubernetes.io/arch", "s390x", ""),
        ("node.kubernetes.io/instance-type", "p2", "old"),
        ("disk", "ssd", "a"),
        ("accelerator", "nvidia-tesla-k80", "old"),
        ("accelerator", "", ""),
    ],
)
def test_affinity_fits_the_nodes_that_a_selector_fits(label: str, value: str, names: str) -> None:
    assert fitting(selecting(**{label: value})) == names
    assert fitting(requiring(label, "In", value)) == names


@pytest.mark.parametrize(
    ("manifest", "names"),
    [
        (requiring(PRODUCT, "In", "Tesla-T4", "NVIDIA-A100-SXM4-80GB"), "a"),
        (requiring(PRODUCT, "NotIn", "Tesla-V100-SXM2-16GB"), "a old"),
        (requiring(PRODUCT, "Exists"), "v a old"),
        (requiring("skypilot.co/accelerator", "Exists"), "v a old"),
        (requiring(PRODUCT, "DoesNotExist"), ""),
        (requiring("nvidia.com/gpu.memory", "Gt", "20000"), "a"),
        (requiring("nvidia.com/gpu.count", "Lt", "8"), "v old"),
        (requiring("kubernetes.io/hostname", "NotIn", "v"), "a old"),
        (requiring("metadata.name", "In", "v", field="matchFields"), "v"),
        (requiring("node.kubernetes.io/instance-type", "Exists"), "old"),
    ],
)
def test_affinity_in_all_its_words(manifest: dict[str, Any], names: str) -> None:
    assert fitting(manifest) == names


def test_a_job_without_gpus_may_name_their_type_too() -> None:
    assert fitting(selecting(**{PRODUCT: "Tesla-V100-SXM2-16GB"}), gpus=0) == "v"
    assert fitting(requiring(PRODUCT, "In", "Tesla-V100-SXM2-16GB"), gpus=0) == "v"
    assert fitting(requiring("nvidia.com/gpu.count", "DoesNotExist"), gpus=0) == "plain"


def test_processors_have_the_names_of_kubernetes() -> None:
    def arch(machine: str) -> str:
        return dict(node_labels("n", NODES[0].capacity, machine, {}))["kubernetes.io/arch"]

    assert [arch(machine) for machine in ("x86_64", "aarch64", "ppc64le")] == ["amd64", "arm64", "ppc64le"]


def test_labels_of_the_config_come_first() -> None:
    own = {"kubernetes.io/hostname": "rack-1", "node.kubernetes.io/instance-type": "dgx"}
    found = dict(node_labels("n", NODES[0].capacity, "x86_64", own))
    assert {key: found[key] for key in own} == own
