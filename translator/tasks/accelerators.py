"""SkyPilot's names of GPU types, derived from node labels."""

from __future__ import annotations

from collections.abc import Sequence

from translator.field import Field
from translator.manifests import gpus

#: Labels of GPU Feature Discovery, GKE, CoreWeave, SkyPilot, Karpenter and Nebius (SkyPilot 0.14.1,
#: sky/provision/kubernetes/utils.py, LABEL_FORMATTER_REGISTRY), and a common one.
LABELS = (*gpus.LABELS, "karpenter.k8s.aws/instance-gpu-name", "nebius.com/gpu-name")

#: SkyPilot's names that differ from ours (sky/utils/gpu_names.py; names of its catalogs).
_NAMES = {
    "RTXA6000": "A6000",
    "RTXA5000": "A5000",
    "RTXA4000": "A4000",
    "RTX6000-ADA": "RTX6000-Ada",
    "T4G": "T4g",
}
#: Types that SkyPilot 0.14.1 knows without a catalog, and a few types of its catalogs.
KNOWN = frozenset(
    (
        *("GB300", "GB200", "B300", "B200", "B100", "GH200", "H200", "H100", "H100-MEGA-80GB", "A100-80GB"),
        *("A100", "A10G", "A10", "A16", "A30", "A40", "RTX6000-Ada", "L40S", "L40", "L4", "A6000", "A5000"),
        *("A4000", "V100-32GB", "V100", "P100", "P40", "P4000", "P4", "T4g", "T4", "K80", "M60", "RTX4090"),
        *("RTX3090", "MI300X", "MI250X", "MI100"),
    )
)
_MAKERS = {"nvidia.com/gpu": "nvidia", "amd.com/gpu": "amd"}

Accelerators = str | dict[str, int]


def sky_name(label: str) -> str:
    """SkyPilot's name of the GPU that a label's value names; "" if it names no model."""
    if "H100-MEGA" in label.upper():
        return "H100-MEGA-80GB"
    name = gpus.gpu_type(label)
    return _NAMES.get(name, name)


def named(types: Sequence[str], count: int) -> Accelerators:
    """Accelerators of any of these types; SkyPilot chooses the cheapest available one."""
    return dict.fromkeys(types, count)


def of_maker(resource: str, count: int) -> Accelerators:
    """Any GPU of the resource's maker; SkyPilot selects types by least memory, here 1 GB."""
    return f"{_MAKERS[resource]}:1GB+:{count}"


def affine_types(requirement: Field) -> tuple[str, ...]:
    """The GPU types that a node affinity requirement lists; () if it concerns another label."""
    if requirement.at("key").value not in LABELS or requirement.at("operator").value != "In":
        return ()
    names = [sky_name(value.text() or "") for value in requirement.at("values").items()]
    return tuple(dict.fromkeys(names)) if all(names) else ()
