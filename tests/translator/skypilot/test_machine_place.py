"""What a node selector and required affinity become in a task, and what is said where they cannot be kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translator.manifests import errors, job
from tests.translator.test_places import PRODUCT, require, select
from translator.fidelity import FidelityLevel, Translation
from translator.tasks.skypilot import to_skypilot

KEPT, LIKE, LOST, NO = (
    FidelityLevel.KEPT,
    FidelityLevel.APPROXIMATED,
    FidelityLevel.DROPPED,
    FidelityLevel.REFUSED,
)


def told(found: Translation, part: str) -> list[tuple[FidelityLevel, str]]:
    return [(line.verdict, line.text) for line in found.report if part in line.field]


@pytest.mark.parametrize(
    ("manifest", "accelerators", "verdict"),
    [
        (require([(PRODUCT, "In", ["TITAN-RTX", "NVIDIA-A10", "NVIDIA-A40"])]), {"A10": 1, "A40": 1}, LIKE),
        (require([(PRODUCT, "In", ["NVIDIA-A10-MIG-1g.5gb", "NVIDIA-A10"])]), {"A10": 1}, LIKE),
        (require([(PRODUCT, "In", ["Quadro-RTX-8000"])]), {"RTX8000": 1}, LIKE),
        (
            require([(PRODUCT, "In", ["NVIDIA-A10"])], [(PRODUCT, "In", ["NVIDIA-L4"])]),
            {"A10": 1, "L4": 1},
            KEPT,
        ),
        (require([("amd.com/gpu.product-name", "In", ["AMD_Instinct_MI300X_OAM"])]), {"MI300X": 1}, KEPT),
        (require([("k8s.amazonaws.com/accelerator", "In", ["nvidia-tesla-v100"])]), {"V100": 1}, KEPT),
        (select(PRODUCT, "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"), {"RTXPRO6000": 1}, LIKE),
        (select(PRODUCT, "NVIDIA-B300-SXM6-AC"), {"B300": 1}, KEPT),
        (select(PRODUCT, "Tesla-V100-SXM3-32GB-H"), {"V100-32GB": 1}, KEPT),
        (select(PRODUCT, "Tesla-V100-DGXS-32GB"), {"V100-32GB": 1}, KEPT),
    ],
)
def test_types_are_those_that_skypilot_has(
    manifest: dict[str, Any], accelerators: dict[str, int], verdict: FidelityLevel
) -> None:
    found = to_skypilot(manifest)
    assert found.task["resources"]["accelerators"] == accelerators
    part = "nodeSelectorTerms" if "affinity" in manifest["spec"]["template"]["spec"] else "nodeSelector"
    assert {each for each, _ in told(found, part)} == {verdict}
    assert not found.refused()


def test_memory_of_gpus_is_a_list_of_types() -> None:
    found = to_skypilot(require([("nvidia.com/gpu.memory", "Gt", ["150000"])]))
    assert set(found.task["resources"]["accelerators"]) >= {"B200", "MI300X"}
    assert not set(found.task["resources"]["accelerators"]) & {"A100", "H100", "H200"}


@pytest.mark.parametrize(
    "manifest",
    [
        require([("kubernetes.io/arch", "In", ["arm64"])]),
        require([("kubernetes.io/os", "In", ["windows"])]),
        require([("kubernetes.io/hostname", "In", ["n7"])]),
        require([(PRODUCT, "In", ["NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"])]),
        select(PRODUCT, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
        select("kubernetes.io/arch", "arm64"),
    ],
)
def test_what_no_rented_machine_is_is_refused_however_it_is_asked_for(manifest: dict[str, Any]) -> None:
    assert [line.verdict for line in to_skypilot(manifest).refused()] == [NO]


@pytest.mark.parametrize(
    ("manifest", "field", "value"),
    [
        (require([("karpenter.sh/capacity-type", "In", ["spot"])]), "use_spot", True),
        (select("node.kubernetes.io/instance-type", "g5.xlarge"), "instance_type", "g5.xlarge"),
        (select("topology.kubernetes.io/region", "us-east-1"), "infra", "*/us-east-1"),
        (select("topology.kubernetes.io/zone", "us-east-1a"), "infra", "*/*/us-east-1a"),
    ],
)
def test_price_type_and_place_are_kept(manifest: dict[str, Any], field: str, value: object) -> None:
    assert to_skypilot(manifest).task["resources"][field] == value


@pytest.mark.parametrize(("asked", "rented"), [(1, 1), (2, 2), (3, 4), (5, 8), (6, 8), (8, 8)])
def test_a_number_of_gpus_that_no_machine_has_is_rounded_up_and_said(asked: int, rented: int) -> None:
    found = to_skypilot(job("CONTAINER/resources", {"limits": {"nvidia.com/gpu": asked}}))
    assert found.task["resources"]["accelerators"] == f"nvidia:1GB+:{rented}"
    assert any(f"as {rented}: machines have" in line.text for line in found.report) is (asked != rented)


def test_a_gang_of_skypilot_ends_together() -> None:
    assert told(to_skypilot(job("spec/parallelism", 2)), "spec.parallelism")[0][0] is LIKE
    assert told(to_skypilot(job("spec/parallelism", 1)), "spec.parallelism") == [(KEPT, "as one node")]


@pytest.mark.parametrize(
    "image", ["busybox", "docker.io/library/alpine:3", "python:3.12-alpine", "a/pause@sha256:1"]
)
def test_an_image_that_skypilot_cannot_run_is_refused(image: str) -> None:
    assert [line.field for line in to_skypilot(job("CONTAINER/image", image)).refused()] == [
        "spec.template.spec.containers[0].image"
    ]


def test_names_of_the_clusters_dns_are_not_found_there() -> None:
    gang = job("POD/subdomain", "ring")
    assert told(to_skypilot(gang), "subdomain")[0][0] is LOST
    gang["spec"]["parallelism"] = 2
    assert [line.field for line in to_skypilot(gang).refused()] == ["spec.template.spec.subdomain"]
    service = job("CONTAINER/env", [{"name": "DB", "value": "http://db.ns.svc.cluster.local:80"}])
    assert any(
        "names a service of the cluster" in text for _, text in told(to_skypilot(service), "env[0].value")
    )


@pytest.mark.parametrize("key", ["gpu-fraction", "gpu-memory"])
@pytest.mark.parametrize("path", ["metadata", "spec|template|metadata"])
def test_a_part_of_a_gpu_is_refused_and_no_machine_without_one_is_rented(key: str, path: str) -> None:
    shared = job(f"{path}|annotations", {key: "0.5"})
    (line,) = errors(shared)
    assert line.endswith("parts of a GPU are not given out; ask for nvidia.com/gpu: 1 under limits")
    assert to_skypilot(shared).refused()


def test_the_uid_of_a_job_is_nowhere_else() -> None:
    field = {"fieldRef": {"fieldPath": "metadata.labels['controller-uid']"}}
    found = to_skypilot(job("CONTAINER/env", [{"name": "UID", "valueFrom": field}]))
    assert "the uid of the Job exists in the cluster alone" in found.refused()[0].text
