"""SkyPilot's names of GPU types, derived from node labels."""

from __future__ import annotations

from collections.abc import Sequence

from starburst.domain.constraints import Requirement
from starburst.domain.gpu_types import gpu_type, memory_gib
from starburst.domain.resources import MIB_PER_GIB

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
    name = gpu_type(label)
    return _NAMES.get(name, name)


def named(types: Sequence[str], count: int) -> Accelerators:
    """Accelerators of any of these types; SkyPilot chooses the cheapest available one."""
    return dict.fromkeys(types, count)


def of_maker(resource: str, count: int) -> Accelerators:
    """Any GPU of the resource's maker; SkyPilot selects types by least memory, here 1 GB."""
    return f"{_MAKERS[resource]}:1GB+:{count}"


def with_memory(requirement: Requirement, types: Sequence[str]) -> tuple[str, ...]:
    """Those of these types whose memory meets a requirement in MiB; one of unknown memory does not."""
    sizes = {name: memory_gib(gpu_type(name)) for name in types}
    return tuple(
        name
        for name, gib in sizes.items()
        if gib is not None and requirement.holds({requirement.key: str(gib * MIB_PER_GIB)})
    )


def rentable(count: int) -> int:
    """The least number of GPUs that machines have and that is no smaller than this one.

    SkyPilot takes only machines with exactly as many GPUs as asked for (0.14.1, sky/catalog/common.py).
    """
    return 1 << (count - 1).bit_length()
