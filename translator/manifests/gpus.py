"""GPU types: the labels that name them, and a canonical short name of each."""

from __future__ import annotations

import re

from translator.field import Field

LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/class",
    "skypilot.co/accelerator",
    "accelerator",
)

#: Maker, product line, socket and memory technology: not needed to distinguish types.
_FILLER = re.compile(
    r"NVIDIA|AMD|TESLA|GEFORCE|QUADRO|INSTINCT|SXM\d?|PCIE?|NVLINK|NVL|HGX|DGX|HBM\d?E?|OAM|MEGA|SHARED|GENERATION"
)
_MEMORY = re.compile(r"\d+GI?B")

#: Types with two memory sizes: the larger size is part of the name.
_LARGE = frozenset({("V100", "32GB"), ("A100", "80GB")})


def gpu_type(label: str) -> str:
    """A short upper-case name: "NVIDIA-A100-SXM4-80GB" → "A100-80GB"; "" if the label names no model."""
    words = [word for word in re.split(r"[-_ ]+", label.upper()) if word and not _FILLER.fullmatch(word)]
    memory = next((word.replace("GIB", "GB") for word in words if _MEMORY.fullmatch(word)), "")
    model = "-".join(word for word in words if not _MEMORY.fullmatch(word))
    model = re.sub(r"\bRTX-(?=A?\d)", "RTX", model)
    if not any(c.isdigit() for c in model):
        return ""
    return f"{model}-{memory}" if (model, memory) in _LARGE else model


def split_selector(selector: Field, gpus: int) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The GPU type that a node selector requires, and its other labels, sorted."""
    kind = ""
    others: list[tuple[str, str]] = []
    for key, field in selector.entries().items():
        value = field.text()
        if value is None:
            if field.value is None:
                field.refuse("a node selector needs a value; write the label's value or remove the key")
            continue
        named = gpu_type(value) if key in LABELS and gpus else ""
        if not named:
            others.append((key, value))
        elif "-MIG-" in value.upper():
            field.refuse("parts of a GPU are not supported; select a whole one")
        elif kind and named != kind:
            field.refuse(f"asks for {named}, but another label asks for {kind}; keep one of the two")
        else:
            kind = named
    return kind, tuple(sorted(others))
