"""The labels that name types of GPUs, and the type that a node selector requires."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from starburst.domain.gpu_types import gpu_type
from translator.field import Field

#: Labels of GPU Feature Discovery, AMD, GKE, CoreWeave, EKS and SkyPilot, and a common one: they say which
#: type of GPU a node has.
LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/class",
    "k8s.amazonaws.com/accelerator",
    "skypilot.co/accelerator",
    "accelerator",
)
#: Labels of Karpenter and Nebius that name a type as well (SkyPilot 0.14.1,
#: sky/provision/kubernetes/utils.py, LABEL_FORMATTER_REGISTRY).
OTHER_LABELS = ("karpenter.k8s.aws/instance-gpu-name", "nebius.com/gpu-name")

#: Annotations and labels of KAI and Run:ai that ask for a part of a GPU.
_SHARES = ("gpu-fraction", "gpu-fraction-num-devices", "gpu-memory")


def refuse_shares(metadata: Field) -> None:
    """Refuse requests for parts of a GPU, which would be no GPU at all here."""
    for kind in ("annotations", "labels"):
        for key in _SHARES:
            share = metadata.at(kind).at(key)
            if share.value is not None:
                share.refuse("parts of a GPU are not given out; ask for nvidia.com/gpu: 1 under limits")


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
        named = gpu_type(value) if key in LABELS and gpus and "-MIG-" not in value.upper() else ""
        if not named:
            others.append((key, value))
        elif kind and named != kind:
            field.refuse(f"asks for {named}, but another label asks for {kind}; keep one of the two")
        else:
            kind = named
    return kind, tuple(sorted(others))


def gpu_type_of(labels: Mapping[str, str]) -> str:
    """The GPU type that a node's labels name; "" if none does."""
    return next((kind for label in LABELS if label in labels and (kind := _kind(labels[label]))), "")


_kind = lru_cache(maxsize=1024)(gpu_type)
