"""Types of GPUs: one short name for every way in which node labels and price lists write it, and its facts.

Sources: labels of NVIDIA's GPU Feature Discovery, AMD's node labeller, GKE, EKS and Karpenter; SkyPilot's
catalogs; the makers' data sheets for memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Maker, product line, socket and memory technology: not needed to distinguish types.
_FILLER = re.compile(
    r"NVIDIA|AMD|TESLA|GEFORCE|QUADRO|INSTINCT|SXM\d?|PCIE?|NVLINK|NVL|HGX|DGXS?|HBM\d?E?|OAM|MEGA|SHARED|GENERATION"
    r"|BLACKWELL|SERVER|WORKSTATION|EDITION|AC|H"
)
_MEMORY = re.compile(r"\d+GI?B")
#: Types with two memory sizes: the larger size is part of the name.
_LARGE = frozenset({("V100", "32GB"), ("A100", "80GB")})
#: Price lists leave out the RTX of these.
_SHORT = re.compile(r"A[456]000")

#: GiB of one GPU.
_GIB = {
    **dict.fromkeys(("K80",), 12),
    **dict.fromkeys(("M60", "P4", "RTX4000"), 8),
    **dict.fromkeys(("P100", "V100", "T4", "T4G", "A16", "RTXA4000"), 16),
    **dict.fromkeys(("P40", "A10", "A10G", "A30", "L4", "RTX3090", "RTX4090", "RTXA5000"), 24),
    **dict.fromkeys(("V100-32GB", "MI100", "RTX5090"), 32),
    "A100": 40,
    **dict.fromkeys(("A40", "L40", "L40S", "RTXA6000", "RTX6000-ADA", "RTX8000"), 48),
    **dict.fromkeys(("A100-80GB", "H100"), 80),
    **dict.fromkeys(("GH200", "RTXPRO6000"), 96),
    "MI250X": 128,
    "H200": 141,
    **dict.fromkeys(("B200", "GB200"), 180),
    **dict.fromkeys(("B100", "MI300X"), 192),
    **dict.fromkeys(("B300", "GB300", "MI325X"), 256),
}
_ARM = frozenset({"T4G", "GH200", "GB200", "GB300"})
_OTHER_MAKERS = re.compile(r"INFERENTIA|TRAINIUM|GAUDI|TPU|QUALCOMM|XILINX|INTEL|MAX1", re.IGNORECASE)
_AMD = re.compile(r"MI\d|RADEON", re.IGNORECASE)
#: Between the types of a demand that takes any of several; no type has a space in its name.
_OR = " or "


def gpu_type(label: str) -> str:
    """A short upper-case name: "NVIDIA-A100-SXM4-80GB" → "A100-80GB"; "" if the label names no model."""
    words = [word for word in re.split(r"[-_ ]+", label.upper()) if word and not _FILLER.fullmatch(word)]
    memory = next((word.replace("GIB", "GB") for word in words if _MEMORY.fullmatch(word)), "")
    model = "-".join(word for word in words if not _MEMORY.fullmatch(word))
    model = re.sub(r"\bRTX-(?=A?\d)", "RTX", model).replace("RTX-PRO-", "RTXPRO")
    if not any(c.isdigit() for c in model):
        return ""
    if _SHORT.fullmatch(model):
        model = f"RTX{model}"
    return f"{model}-{memory}" if (model, memory) in _LARGE else model


def either(types: Iterable[str]) -> str:
    """The types that a demand takes as its constraint, "A100 or H100"; "" is any type."""
    return _OR.join(dict.fromkeys(types))


def types_of(constraint: str) -> tuple[str, ...]:
    """The types that a demand's constraint names; () is any type."""
    return tuple(constraint.split(_OR)) if constraint else ()


def takes(constraint: str, kind: str) -> bool:
    """Whether a demand with this constraint takes GPUs of this type; "" is one that is not known."""
    return constraint in ("", kind) or (_OR in constraint and kind in types_of(constraint))


def memory_gib(kind: str) -> int | None:
    """GiB of one GPU of this type; None if it is not known."""
    return _GIB.get(kind)


def is_arm(kind: str) -> bool:
    """Whether machines with this type have ARM processors."""
    return kind in _ARM


def maker(name: str) -> str:
    """Who makes an accelerator, by its name in a price list: "nvidia", "amd" or "other"."""
    if _AMD.search(name):
        return "amd"
    return "other" if _OTHER_MAKERS.search(name) else "nvidia"
