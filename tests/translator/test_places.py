"""What node selector and affinity require of rented machines: the offers they admit, and what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from tests.translator.manifests import job, read_one
from translator.manifests.places import ASSUMED, STAYS

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def offer(name: str, kind: str = "", **more: Any) -> Offer:
    gpus = 1 if kind else 0
    resources = Resources.of(gpus, 8, 64, kind)
    return Offer(name, resources, Money.of("1"), "us-east-1", cloud="aws", **more)


V100 = offer("aws/us-east-1/p3.2xlarge", "V100", gpu_memory_mib=16384)
V100_SPOT = replace(V100, name=f"{V100.name}/spot", spot=True)
A100 = offer("aws/us-east-1/p4d.1", "A100")
A100_80 = offer("aws/us-east-1/p4de.1", "A100-80GB")
T4G = offer("aws/us-east-1/g5g.xlarge", "T4G", arch="arm64")
RADEON = offer("aws/us-east-1/g4ad.xlarge", "RADEON-PRO-V520", gpu_maker="amd")
MI300 = offer("azure/eastus/ND1", "MI300X", gpu_maker="amd")
ZONED = replace(A100, name="z", zones=(("us-east-1a", "za"), ("us-east-1b", "zb")))
IN_B = replace(A100, name="zb", zone="us-east-1b")
OFFERS = (V100, V100_SPOT, A100, A100_80, T4G, RADEON, MI300)


def selecting(**labels: str) -> dict[str, Any]:
    return job("POD/nodeSelector", labels)


def select(key: str, value: str) -> dict[str, Any]:
    return job("POD/nodeSelector", {key: value})


def require(*terms: list[tuple[str, str, list[str]]], field: str = "matchExpressions") -> dict[str, Any]:
    found = [
        {field: [{"key": k, "operator": o, **({"values": v} if v else {})} for k, o, v in term]}
        for term in terms
    ]
    return job(f"POD/affinity/nodeAffinity/{REQUIRED}", {"nodeSelectorTerms": found})


def admitted(manifest: dict[str, Any], offers: tuple[Offer, ...] = OFFERS) -> set[str]:
    """The GPU types, or names, of the offers on which the job may run."""
    found = read_one(manifest).job
    kind = found.tasks[0].gpu_type
    return {
        f"{each.resources.gpu_type}{' spot' if each.spot else ''}"
        for each in offers
        if kind in ("", each.resources.gpu_type) and found.offer_rules.admits(each)
    }


COMMON = {"V100", "V100 spot", "A100", "A100-80GB"}
PRODUCT = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (job("metadata/name", "plain"), COMMON),
        (require([(PRODUCT, "In", ["NVIDIA-A100-SXM4-80GB"])]), {"A100-80GB"}),
        (require([(PRODUCT, "In", ["TITAN-RTX", "NVIDIA-A100-SXM4-40GB"])]), {"A100"}),
        (require([(PRODUCT, "NotIn", ["Tesla-V100-SXM2-16GB"])]), {"A100", "A100-80GB"}),
        (require([(PRODUCT, "In", ["NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"])]), set()),
        (select(PRODUCT, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"), set()),
        (select(PRODUCT, "NVIDIA-A100-SXM4-80GB"), {"A100-80GB"}),
        (select("cloud.google.com/gke-accelerator", "nvidia-tesla-a100"), {"A100"}),
        (select("k8s.amazonaws.com/accelerator", "nvidia-tesla-v100"), {"V100", "V100 spot"}),
        (select("karpenter.k8s.aws/instance-gpu-name", "a100"), {"A100"}),
        (require([("nvidia.com/gpu.memory", "Gt", ["30000"])]), {"A100", "A100-80GB"}),
        (require([("nvidia.com/gpu.count", "In", ["8"])]), set()),
        (select("kubernetes.io/arch", "amd64"), COMMON),
        (select("kubernetes.io/arch", "arm64"), {"T4G"}),
        (require([("kubernetes.io/arch", "In", ["amd64", "arm64"])]), {*COMMON, "T4G"}),
        (require([("kubernetes.io/arch", "NotIn", ["amd64"])]), {"T4G"}),
        (select(PRODUCT, "NVIDIA-T4G"), {"T4G"}),
        (select("kubernetes.io/os", "linux"), COMMON),
        (select("beta.kubernetes.io/os", "windows"), set()),
        (select("kubernetes.io/hostname", "node-7"), set()),
        (require([("metadata.name", "In", ["node-7"])], field="matchFields"), set()),
        (require([("kubernetes.io/hostname", "NotIn", ["node-7"])]), COMMON),
        (
            require([("kubernetes.io/hostname", "In", ["node-7"])], [(PRODUCT, "In", ["V100"])]),
            {"V100", "V100 spot"},
        ),
        (select("node.kubernetes.io/instance-type", "p3.2xlarge"), {"V100", "V100 spot"}),
        (select("topology.kubernetes.io/region", "us-east-1"), COMMON),
        (select("topology.kubernetes.io/region", "eu-1"), set()),
        (select("cloud.google.com/gke-spot", "true"), {"V100 spot"}),
        (select("karpenter.sh/capacity-type", "on-demand"), COMMON - {"V100 spot"}),
        (select("eks.amazonaws.com/capacityType", "ON_DEMAND"), COMMON - {"V100 spot"}),
        (require([("kubernetes.azure.com/scalesetpriority", "DoesNotExist", [])]), COMMON - {"V100 spot"}),
        (selecting(disktype="ssd"), COMMON),
        (job("CONTAINER/resources", {"limits": {"amd.com/gpu": 1}}), {"RADEON-PRO-V520", "MI300X"}),
    ],
)
def test_only_offers_that_are_as_required_are_places(manifest: dict[str, Any], expected: set[str]) -> None:
    assert admitted(manifest) == expected


def test_a_zone_is_kept_by_offers_of_one_zone() -> None:
    places = (ZONED, IN_B)
    there = read_one(select("topology.kubernetes.io/zone", "us-east-1b")).job.offer_rules
    assert [there.admits(each) for each in places] == [False, True]
    away = read_one(require([("topology.kubernetes.io/zone", "NotIn", ["us-east-1b"])])).job.offer_rules
    assert [away.admits(each) for each in places] == [False, False]
    assert there.names_zones


def test_the_users_annotation_on_spot_comes_first() -> None:
    manifest = select("karpenter.sh/capacity-type", "spot")
    manifest["metadata"]["annotations"] = {"starburst.io/use-spot": "false"}
    assert admitted(manifest) == COMMON - {"V100 spot"}


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (select("kubernetes.io/arch", "arm64"), "no offer that holds it has arch arm64"),
        (
            require([(PRODUCT, "In", ["NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"])]),
            "no offer that holds it has GPU type H100 or L4",
        ),
        (select("kubernetes.io/hostname", "node-7"), "no offer that holds it has hostname node-7"),
    ],
)
def test_what_no_offer_has_is_said(manifest: dict[str, Any], why: str) -> None:
    assert read_one(manifest).job.offer_rules.why_none([V100, A100]) == why


@pytest.mark.parametrize(
    ("manifest", "notes"),
    [
        (selecting(disktype="ssd"), [ASSUMED]),
        (require([("team", "NotIn", ["a"]), ("disktype", "Exists", [])]), [ASSUMED]),
        (select("kubernetes.io/hostname", "node-7"), [STAYS]),
        (select("kubernetes.io/arch", "arm64"), []),
    ],
)
def test_what_is_assumed_is_noted(manifest: dict[str, Any], notes: list[str]) -> None:
    assert [note.partition(": ")[2] for note in read_one(manifest).notes] == notes
    manifest["metadata"]["annotations"] = {"starburst.io/cloud": "never"}
    assert read_one(manifest).notes == ()
    assert not read_one(manifest).job.offer_rules.requires
