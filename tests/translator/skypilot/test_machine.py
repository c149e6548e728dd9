"""What a pod asks for, as the size, the GPUs and the place of a machine."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.translator.manifests import job
from translator.quantity import quantity
from translator.tasks.machine import at_least
from translator.tasks.skypilot import to_skypilot

WHOLE = st.integers(1, 10**6).map(str)
CPUS = WHOLE | WHOLE.map("{}m".format) | st.decimals(1, 9, places=3).map(str)
MEMORY = st.builds(
    "{}{}".format,
    st.integers(1, 10**6),
    st.sampled_from(["", "k", "M", "G", "Ki", "Mi", "Gi"]),
)


def resources(**asked: object) -> dict[str, object]:
    """The `resources` of a good Job whose container asks for this."""
    found: dict[str, object] = to_skypilot(job("CONTAINER/resources", {"requests": asked})).task["resources"]
    return found


@given(CPUS, MEMORY)
def test_a_machine_has_what_was_asked_for_and_hardly_more(cpu, memory):
    found = resources(cpu=cpu, memory=memory)
    cpus, gib = (Fraction(str(found[key]).removesuffix("+")) for key in ("cpus", "memory"))
    assert 0 <= cpus - quantity(cpu) < Fraction(1, 1000)
    # rounded up to a MiB, as the scheduler counts, and that to a thousandth of a GiB
    assert 0 <= gib - quantity(memory) / 2**30 < Fraction(1, 1024) + Fraction(1, 1000)


@given(st.fractions(0, 10**9))
def test_an_amount_is_written_out_without_an_exponent(amount):
    text = at_least(amount)
    assert text.endswith("+")
    assert "e" not in text
    assert amount <= Fraction(text[:-1]) < amount + Fraction(1, 1000)


@pytest.mark.parametrize(
    ("amount", "text"),
    [("4", "4+"), ("1/4", "0.25+"), ("1/3", "0.334+"), ("100", "100+"), ("0", "0+")],
)
def test_amounts_are_short(amount, text):
    assert at_least(Fraction(amount)) == text


@pytest.mark.parametrize(
    ("label", "value", "accelerators"),
    [
        ("nvidia.com/gpu.product", "Tesla-V100-SXM2-16GB", {"V100": 1}),
        ("nvidia.com/gpu.product", "Tesla-V100-SXM2-32GB", {"V100-32GB": 1}),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", {"A100": 1}),
        ("nvidia.com/gpu.product", "NVIDIA-A100-80GB-PCIe", {"A100-80GB": 1}),
        ("nvidia.com/gpu.product", "NVIDIA-A10G", {"A10G": 1}),
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3", {"H100": 1}),
        ("nvidia.com/gpu.product", "NVIDIA-RTX-A6000", {"A6000": 1}),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-p100", {"P100": 1}),
        ("cloud.google.com/gke-accelerator", "nvidia-l4", {"L4": 1}),
        ("cloud.google.com/gke-accelerator", "nvidia-h100-mega-80gb", {"H100-MEGA-80GB": 1}),
        ("cloud.google.com/gke-accelerator", "nvidia-h200-141gb", {"H200": 1}),
        ("gpu.nvidia.com/class", "H100_NVLINK_80GB", {"H100": 1}),
        ("skypilot.co/accelerator", "a100-80gb", {"A100-80GB": 1}),
        ("karpenter.k8s.aws/instance-gpu-name", "t4", {"T4": 1}),
        ("nebius.com/gpu-name", "H200", {"H200": 1}),
        ("accelerator", "nvidia-tesla-k80", {"K80": 1}),
        ("disk", "ssd-v100", "nvidia:1GB+:1"),
    ],
)
def test_a_gpu_type_is_known_by_the_labels_that_skypilot_knows(label, value, accelerators):
    found = to_skypilot(job("POD/nodeSelector", {label: value}))
    assert found.task["resources"]["accelerators"] == accelerators


def test_two_types_of_gpu_are_one_too_many():
    both = {"nvidia.com/gpu.product": "NVIDIA-L4", "nebius.com/gpu-name": "H200"}
    (line,) = to_skypilot(job("POD/nodeSelector", both)).refused()
    assert (line.field, line.text) == (
        'spec.template.spec.nodeSelector["nebius.com/gpu-name"]',
        "asks for H200, another label for L4; keep one of the two",
    )


@pytest.mark.parametrize(
    ("key", "value", "field", "found"),
    [
        ("infra", "aws", "infra", "aws"),
        ("infra", "gcp/us-central1/us-central1-a", "infra", "gcp/us-central1/us-central1-a"),
        ("infra", "*/*/us-east-1b", "infra", "*/*/us-east-1b"),
        ("use-spot", "true", "use_spot", True),
        ("use-spot", "false", "use_spot", False),
        ("disk-size", "100G", "disk_size", 94),
        ("disk-size", "1Ti", "disk_size", 1024),
        ("max-hourly-cost", "2.75", "max_hourly_cost", 2.75),
        ("autostop", "1h", "autostop", {"idle_minutes": 60, "down": True}),
    ],
)
def test_an_annotation_asks_for_something_of_the_machine(key, value, field, found):
    annotated = to_skypilot(job("metadata|annotations", {f"starburst.io/{key}": value}))
    assert annotated.task["resources"][field] == found
    assert field not in to_skypilot(job("metadata/name", "train")).task["resources"]


@pytest.mark.parametrize(
    ("key", "value", "mend"),
    [
        ("infra", "AWS", "did you mean aws?"),
        ("infra", "kubernetes/ctx", "begin with * or one of aws"),
        ("infra", "aws/us-east-1/a/b", "write a cloud, cloud/region or cloud/region/zone"),
        ("infra", "aws//a", "write a cloud, cloud/region or cloud/region/zone"),
        ("use-spot", "maybe", "must be true or false"),
        ("disk-size", "1Ki", "must be at least 1Gi and at most 65536Gi, such as 200Gi"),
        ("max-hourly-cost", "0", "must be dollars per hour, such as 3.50"),
        ("max-hourly-cost", "1e3", "must be dollars per hour, such as 3.50"),
        ("autostop", "30s", "must be at least 1m and at most 7d"),
        ("autostop", "8d", "must be at least 1m and at most 7d"),
        ("runtime", "docker", "must be container or host"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_its_mend(key, value, mend):
    (line,) = to_skypilot(job("metadata|annotations", {f"starburst.io/{key}": value})).refused()
    assert line.field == f'metadata.annotations["starburst.io/{key}"]'
    assert line.text.startswith(f'"{value}": {mend}')
