"""GPU types and node selectors."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.domain.gpu_types import gpu_type
from tests.builders import offer
from tests.translator.manifests import errors, job, read_one
from translator.manifests.gpus import LABELS


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-SXM4-40GB", "A100"),
        ("NVIDIA-A100-PCIE-40GB", "A100"),
        ("nvidia-tesla-a100", "A100"),
        ("nvidia-a100-80gb", "A100-80GB"),
        ("A100_NVLINK_80GB", "A100-80GB"),
        ("a100-80gb", "A100-80GB"),
        ("nvidia-tesla-v100", "V100"),
        ("Tesla-V100-SXM2-16GB", "V100"),
        ("Tesla-V100-SXM2-32GB", "V100-32GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("nvidia-h100-mega-80gb", "H100"),
        ("NVIDIA-H200", "H200"),
        ("h100", "H100"),
        ("nvidia-l4", "L4"),
        ("NVIDIA-L40S", "L40S"),
        ("NVIDIA-A10G", "A10G"),
        ("Tesla-T4", "T4"),
        ("Tesla-T4-SHARED", "T4"),
        ("NVIDIA-GeForce-RTX-3090", "RTX3090"),
        ("RTX_A6000", "RTXA6000"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("NVIDIA-X900-SXM9-999GB", "X900"),
        ("gpu", ""),
    ],
)
def test_one_name_for_every_way_of_writing_it(label: str, name: str) -> None:
    assert gpu_type(label) == name


@pytest.mark.parametrize("label", LABELS)
def test_a_gpu_label_becomes_the_gpu_type(label: str) -> None:
    found = read_one(job("POD/nodeSelector", {label: "Tesla-V100-SXM2-16GB", "zone": "b", "disk": "ssd"})).job
    assert found.tasks[0].gpu_type == "V100"
    assert found.node_selector == (("disk", "ssd"), ("zone", "b"))


def naming(kinds: str, **selector: str) -> dict[str, Any]:
    manifest = job("metadata|annotations", {"starburst.io/gpu-type": kinds})
    manifest["spec"]["template"]["spec"]["nodeSelector"] = selector
    return manifest


@pytest.mark.parametrize(
    ("kinds", "selector", "taken"),
    [
        ("A100", {}, "A100"),
        ("nvidia-tesla-a100, H100", {}, "A100 or H100"),
        ("h100,a100,NVIDIA-H100-80GB-HBM3", {}, "H100 or A100"),
        ("A100,H100", {"accelerator": "h100"}, "H100"),
    ],
)
def test_an_annotation_names_one_type_or_several(kinds: str, selector: dict[str, str], taken: str) -> None:
    assert read_one(naming(kinds, **selector)).job.tasks[0].gpu_type == taken


def test_an_annotation_that_names_no_type_or_another_than_the_selector_is_refused() -> None:
    key = 'train.yaml, document 1: metadata.annotations["starburst.io/gpu-type"]'
    told = "names no model of a GPU; write one such as A100 or A100-80GB, or several: A100,H100"
    assert errors(naming("A100,gpu")) == [f'{key}: "A100,gpu": {told}']
    (line,) = errors(naming("A100,H100", accelerator="t4"))
    assert line.endswith("starburst.io/gpu-type is A100 or H100, but a node selector asks for T4")


@pytest.mark.parametrize("kinds", ["GH200", "A100,GH200"])
def test_types_whose_machines_have_arm_processors_may_be_rented_for_who_names_them(kinds: str) -> None:
    arm = offer("grace", 8, gpu_type="GH200", arch="arm64")
    assert read_one(naming(kinds)).job.offer_rules.admits(arm)
    assert not read_one(naming("A100,H100")).job.offer_rules.admits(arm)


def test_a_label_that_names_no_model_stays_a_selector() -> None:
    found = read_one(job("POD/nodeSelector", {"accelerator": "yes-please"})).job
    assert found.tasks[0].gpu_type == ""
    assert found.node_selector == (("accelerator", "yes-please"),)


def test_without_a_gpu_a_gpu_label_stays_a_selector() -> None:
    manifest = job("POD/nodeSelector", {"accelerator": "nvidia-l4"})
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 1}}
    found = read_one(manifest, native=True).job
    assert found.tasks[0].gpu_type == ""
    assert found.node_selector == (("accelerator", "nvidia-l4"),)


@pytest.mark.parametrize(
    ("selector", "line"),
    [
        (
            {"accelerator": "v100", "skypilot.co/accelerator": "h100"},
            '["skypilot.co/accelerator"]: "h100": asks for H100, but another label asks for V100; '
            "keep one of the two",
        ),
        ({"ssd": True}, ".ssd: true: must be text; put it in quotes"),
        ({"ssd": None}, ".ssd: a node selector needs a value; write the label's value or remove the key"),
    ],
)
def test_refuses_a_selector_it_cannot_keep(selector: dict[str, object], line: str) -> None:
    assert errors(job("POD/nodeSelector", selector)) == [
        f"train.yaml, document 1: spec.template.spec.nodeSelector{line}"
    ]
