"""The instance that a pod needs, as `resources` of a SkyPilot task: size, GPUs, place, price, labels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from starburst.domain.resources import Resources
from translator.fidelity import Fidelity
from translator.field import ONLY_THE_CLUSTER, Field
from translator.manifests.amounts import GPUS, KNOWN
from translator.manifests.hints import PREFIX, MachineHints
from translator.tasks.accelerators import Accelerators, named, of_maker, rentable
from translator.tasks.machine_place import MachineRequest, read_machine_place
from translator.tasks.manifest_parts import ManifestParts

#: Labels that every cloud accepts; GCP is the strictest (SkyPilot 0.14.1, sky/clouds/gcp.py).
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
#: Labels that AWS accepts (sky/clouds/aws.py).
_AWS_KEY = re.compile(r"(?!aws:)\S{1,127}")
_AWS_VALUE = re.compile(r"\S{0,255}")


def read_machine(
    parts: ManifestParts, resources: Resources, hints: MachineHints, fidelity: Fidelity
) -> dict[str, Any]:
    """The `resources` of a task, without the image."""
    machine = read_machine_place(parts.spec, resources.gpus, hints, fidelity)
    found: dict[str, Any] = {}
    if machine.instance_type:
        found["instance_type"] = machine.instance_type
    else:
        found = _size(resources)
        if resources.gpus:
            found["accelerators"] = _accelerators(parts.container, machine, fidelity)
    _say_size(parts, found, fidelity)
    found |= _wishes(parts.metadata, hints, machine, fidelity)
    labels = _labels(parts.metadata, hints, fidelity)
    return found | ({"labels": labels} if labels else {})


def at_least(amount: Fraction) -> str:
    """An amount as SkyPilot's "at least", in thousandths rounded up: "0.25+", "16+"."""
    thousandths = math.ceil(amount * 1000)
    whole, rest = divmod(thousandths, 1000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".") + "+"


def _size(resources: Resources) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if resources.cpu_milli:
        found["cpus"] = at_least(Fraction(resources.cpu_milli, 1000))
    if resources.memory_mib:
        found["memory"] = at_least(Fraction(resources.memory_mib, 1024))
    return found


def _accelerators(container: Field, machine: MachineRequest, fidelity: Fidelity) -> Accelerators:
    amounts = container.at("resources")
    side = amounts.at("limits") if amounts.at("limits").value else amounts.at("requests")
    asked = side.value if isinstance(side.value, dict) else {}
    resource = next((name for name in GPUS if asked.get(name)), GPUS[0])
    count = rentable(machine.gpus)
    if count != machine.gpus:
        fidelity.approximated(
            side.at(resource),
            f"as {count}: machines have 1, 2, 4, 8 or 16 GPUs, and SkyPilot takes no larger",
        )
    if machine.types:
        return named(machine.types, count)
    fidelity.approximated(
        side.at(resource),
        "any type, the cheapest of all offers; name one by a node selector such as skypilot.co/accelerator",
    )
    return of_maker(resource, count)


def _say_size(parts: ManifestParts, found: Mapping[str, Any], fidelity: Fidelity) -> None:
    resources, spec = parts.container.at("resources"), parts.spec
    asked, limits = resources.at("requests"), resources.at("limits")
    told = f"as {', '.join(f'{key}: {_shown(value)}' for key, value in found.items())}"
    if fidelity.has_approximated_within(resources):
        fidelity.approximated(resources, told)
    elif found.keys() & {"accelerators", "instance_type"} or asked.at("cpu").value or limits.at("cpu").value:
        fidelity.kept(resources, told)
    else:
        fidelity.approximated(resources, f"{told}; asks for no CPU and no GPU, so 1 CPU is taken")
    for side in ("overhead", "resources"):
        if spec.at(side).value:
            fidelity.kept(spec.at(side), "is counted among the container's")
    for name, limit in limits.entries().items():
        if asked.at(name).value not in (None, limit.value) and name not in GPUS:
            fidelity.dropped(limit, "no ceiling holds there; a job may use what its machine has")
    for amounts in (asked, limits):
        for name, amount in amounts.entries().items():
            if name not in (*KNOWN, "ephemeral-storage") and amount.value is not None:
                fidelity.refused(amount, f"no rented machine has such a resource; {ONLY_THE_CLUSTER}")
        if amounts.at("ephemeral-storage").value is not None:
            fidelity.dropped(
                amounts.at("ephemeral-storage"), f"set the size of the disk by {PREFIX}disk-size"
            )


def _shown(amount: object) -> str:
    return (
        ", ".join(f"{name}:{count}" for name, count in amount.items())
        if isinstance(amount, dict)
        else str(amount)
    )


def _wishes(
    metadata: Field, hints: MachineHints, machine: MachineRequest, fidelity: Fidelity
) -> dict[str, Any]:
    """The user's hints for the instance, under SkyPilot's names."""
    found: dict[str, Any] = {}
    if len(machine.infra) == 1:
        found["infra"] = machine.infra[0]
    elif machine.infra:
        found["any_of"] = [{"infra": place} for place in machine.infra]
    if machine.spot or hints.use_spot is not None:
        found["use_spot"] = machine.spot or bool(hints.use_spot)
    if hints.disk_gib is not None:
        found["disk_size"] = hints.disk_gib
    if hints.max_hourly_cost is not None:
        found["max_hourly_cost"] = float(hints.max_hourly_cost)
    if hints.autostop_min is not None:
        found["autostop"] = {"idle_minutes": hints.autostop_min, "down": True}
    for kind in ("labels", "annotations"):
        for name in found:
            label = metadata.at(kind).at(PREFIX + {"any_of": "infra"}.get(name, name).replace("_", "-"))
            if label.value is not None:
                fidelity.kept(label, f"as {name}")
    return found


def _labels(metadata: Field, hints: MachineHints, fidelity: Fidelity) -> dict[str, str]:
    """Labels for the instance that the cloud accepts, without hints to Starburst."""
    on_aws = {place.partition("/")[0] for place in hints.infra} == {"aws"}
    keys, values = (_AWS_KEY, _AWS_VALUE) if on_aws else (_LABEL_KEY, _LABEL_VALUE)
    found: dict[str, str] = {}
    for key, label in metadata.at("labels").entries().items():
        value = "" if label.value is None else str(label.value)
        if key.startswith(PREFIX):
            continue
        if keys.fullmatch(key) and values.fullmatch(value):
            found[key] = value
            fidelity.kept(label, f"as labels: {key}")
        else:
            fidelity.dropped(
                label, "AWS takes no such label" if on_aws else "not every cloud takes such a label"
            )
    return found
