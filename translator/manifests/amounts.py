"""Amounts of resources: the requests of a container; a missing request equals the limit."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

from starburst.domain.resources import MILLI, Resources
from translator.field import Field, Fields, did_you_mean
from translator.quantity import quantity

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
GPUS = (NVIDIA, AMD)
KNOWN = ("cpu", "memory", *GPUS)
#: Resources of device plugins that share GPUs among containers.
_PARTS = re.compile(r"/mig-|\bgpu[.-]?(shared|mem|memory|cores|core|percentage)\b|vgpu|gpumem|gpucores")
MIB = 1024**2
#: Memory with which a container engine starts a container at least, MiB.
LEAST_MIB = 6
#: Largest number of GPUs or CPUs per task; a larger one is taken for a typing error.
MOST = 10**6

RESOURCES = Fields(
    "resources",
    read=("requests", "limits"),
    refused={"claims": "resource claims are not supported; ask for GPUs under limits"},
)


Quantities = dict[str, Fraction]


def container_amounts(field: Field) -> Quantities:
    """The requests in the `resources` of a container, by name: CPUs, bytes, GPUs."""
    field.check(RESOURCES)
    limits = amounts(field.at("limits"))
    asked = dict(limits)
    for name, request in amounts(field.at("requests")).items():
        asked[name] = request
        limit = limits.get(name, request)
        if name in GPUS and request != limit:
            field.at("requests").at(name).refuse(f"must equal the limit of {limit} GPUs")
        elif request > limit:
            field.at("requests").at(name).refuse(
                f"is more than the limit of {field.at('limits').at(name).value}"
            )
        elif request < limit and name in ("cpu", "memory") and field.report.native:
            told = field.at("requests").at(name).value
            field.at("limits").at(name).note_away(f"is not the ceiling, which the request of {told} is")
    return asked


def as_resources(asked: Quantities, field: Field) -> Resources:
    """GPUs, CPUs (rounded up to a thousandth) and memory (rounded up to a MiB), without a GPU type.

    Problems and notes refer to `field`.
    """
    kinds = [name for name in GPUS if asked.get(name)]
    if len(kinds) > 1:
        field.refuse("asks for GPUs of two makers; keep one of the two")
    resources = Resources(
        gpus=sum(int(asked[name]) for name in kinds),
        cpu_milli=math.ceil(asked.get("cpu", 0) * MILLI),
        memory_mib=math.ceil(asked.get("memory", Fraction(0)) / MIB),
        others=tuple(sorted((name, math.ceil(n)) for name, n in asked.items() if n and name not in KNOWN)),
    )
    if field.report.native and 0 < resources.memory_mib < LEAST_MIB:  # as 400m, 0.4 bytes, for 400Mi
        field.stay(
            "its memory",
            f"asks for {resources.memory_mib} MiB of memory; no container starts with that as its ceiling",
            "ask for what it uses, such as 512Mi",
        )
    if not resources.gpus and not resources.cpu_milli:
        counted = "it is counted as 1 CPU" if field.report.native else "it gets 1 CPU"
        field.note(f"asks for no CPU and no GPU; {counted}")
        return replace(resources, cpu_milli=MILLI)
    return resources


def amounts(field: Field) -> Quantities:
    """The amounts under `requests` or `limits` of resources that Starburst schedules by."""
    found: Quantities = {}
    for name, entry in field.entries().items():
        if name == "ephemeral-storage":
            entry.note("local disk is counted on a Kubernetes cluster only")
        elif name not in KNOWN and _is_of_nodes(name, entry):
            entry.stay(name, "is a resource of the cluster's nodes, which no offer has")
        elif name not in KNOWN:
            entry.refuse(f"is not a resource Starburst schedules by; {_mend(name)}")
            continue
        if entry.value is not None:
            amount = _amount(entry, name)
            if amount is not None:
                found[name] = amount
    return found


def _mend(name: str) -> str:
    """What to ask for instead of a resource that is not known."""
    if _PARTS.search(name):
        return "it is a part of a GPU; ask for a whole one, nvidia.com/gpu"
    near = GPUS[:1] if "gpu" in name.lower() else KNOWN  # "gpu" resembles "cpu"
    return did_you_mean(name, near, f"ask for {', '.join(near)}")


def _is_of_nodes(name: str, entry: Field) -> bool:
    """Whether a Kubernetes cluster may have nodes with this resource: of a device plugin, or huge pages."""
    return entry.report.native and ("/" in name or name.startswith("hugepages-"))


def _amount(entry: Field, name: str) -> Fraction | None:
    if not isinstance(entry.value, (str, int, float)):
        entry.refuse("must be a quantity such as 2, 500m or 1.5Gi")
        return None
    try:
        amount = quantity(entry.value)
    except ValueError as bad:
        entry.refuse(str(bad))
        return None
    if name in GPUS and amount.denominator != 1:
        low, high = math.floor(amount), math.ceil(amount)
        entry.refuse(f"a GPU count must be a whole number; write {f'{low} or {high}' if low else high}")
        return None
    if name in ("cpu", *GPUS) and amount > MOST:
        entry.refuse(f"must be at most {MOST}")
        return None
    return amount
