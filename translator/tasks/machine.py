"""The instance that a pod needs, as `resources` of a SkyPilot task: size, GPUs, place, price, labels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from starburst.domain.resources import Resources
from translator.fidelity import Fidelity
from translator.field import ONLY_THE_CLUSTER, Field
from translator.manifests.amounts import GPUS, KNOWN
from translator.manifests.hints import PREFIX, MachineHints
from translator.manifests.node_rules import PREFERRED
from translator.podspec import REQUIRED
from translator.tasks.accelerators import KNOWN as KNOWN_GPUS
from translator.tasks.accelerators import LABELS, Accelerators, affine_types, named, of_maker, sky_name
from translator.tasks.manifest_parts import ManifestParts

#: Labels that every cloud accepts; GCP is the strictest (SkyPilot 0.14.1, sky/clouds/gcp.py).
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
#: Labels that AWS accepts (sky/clouds/aws.py).
_AWS_KEY = re.compile(r"(?!aws:)\S{1,127}")
_AWS_VALUE = re.compile(r"\S{0,255}")

#: Node labels that mark spot instances, with the marking value; lower-case.
_SPOT = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacitytype": "spot",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
_LINUX = ("kubernetes.io/os", "beta.kubernetes.io/os")
_ARCHITECTURES = ("kubernetes.io/arch", "beta.kubernetes.io/arch")
_ONE_NODE = "kubernetes.io/hostname"
_NODES = "is a label of the cluster's nodes; rented machines have none"


@dataclass(slots=True)
class MachineRequest:
    """Requirements on the instance, except its size."""

    #: The user's hint on spot instances, and whether a node selector asks for spot.
    wants_spot: bool | None
    spot: bool = False
    types: tuple[str, ...] = ()


def read_machine(
    parts: ManifestParts, resources: Resources, hints: MachineHints, fidelity: Fidelity
) -> dict[str, Any]:
    """The `resources` of a task, without the image."""
    metadata, spec, container = parts.metadata, parts.spec, parts.container
    machine = MachineRequest(hints.use_spot)
    for key, label in spec.at("nodeSelector").entries().items():
        _select(key, label, machine, resources.gpus, fidelity)
    _affinity(spec.at("affinity"), machine, resources.gpus, fidelity)
    found = _size(resources)
    if resources.gpus:
        found["accelerators"] = _accelerators(container, machine, resources.gpus, fidelity)
    _say_size(parts, found, fidelity)
    found |= _wishes(metadata, hints, machine, fidelity)
    labels = _labels(metadata, hints, fidelity)
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


def _accelerators(container: Field, machine: MachineRequest, gpus: int, fidelity: Fidelity) -> Accelerators:
    if machine.types:
        return named(machine.types, gpus)
    asked = container.at("resources").at("limits").value or container.at("resources").at("requests").value
    resource = next((name for name in GPUS if isinstance(asked, dict) and asked.get(name)), GPUS[0])
    fidelity.approximated(
        container.at("resources").at("limits").at(resource),
        "any type, the cheapest to be had; name one by a node selector such as skypilot.co/accelerator",
    )
    return of_maker(resource, gpus)


def _say_size(parts: ManifestParts, found: Mapping[str, Any], fidelity: Fidelity) -> None:
    resources, spec = parts.container.at("resources"), parts.spec
    asked, limits = resources.at("requests"), resources.at("limits")
    told = f"as {', '.join(f'{key}: {_shown(value)}' for key, value in found.items())}"
    if "accelerators" in found or asked.at("cpu").value or limits.at("cpu").value:
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


def _select(key: str, label: Field, machine: MachineRequest, gpus: int, fidelity: Fidelity) -> None:
    """Translate one label of a node selector."""
    value = str(label.value)
    name = sky_name(value) if key in LABELS and gpus else ""
    if name and machine.types:
        fidelity.refused(label, f"asks for {name}, another label for {machine.types[0]}; keep one of the two")
    elif name:
        machine.types = (name,)
        if name in KNOWN_GPUS:
            fidelity.kept(label, f"as accelerators: {name}")
        else:
            fidelity.approximated(label, f"as accelerators: {name}, if SkyPilot has it (sky gpus list)")
    elif _SPOT.get(key.lower()) == value.lower():
        machine.spot = machine.wants_spot is not False
        if machine.spot:
            fidelity.kept(label, "as use_spot")
        else:
            fidelity.dropped(label, f"{PREFIX}use-spot says otherwise")
    elif key in _ARCHITECTURES and value != "amd64":
        fidelity.refused(label, f"SkyPilot chooses no machines by their processor; {ONLY_THE_CLUSTER}")
    elif key in _LINUX and value != "linux":
        fidelity.refused(label, f"rented machines run Linux; {ONLY_THE_CLUSTER}")
    elif key in _ARCHITECTURES or key in _LINUX:
        fidelity.kept(label, "what SkyPilot's images are")
    elif key == _ONE_NODE:
        fidelity.refused(label, f"names a node of the cluster; {ONLY_THE_CLUSTER}")
    else:
        fidelity.dropped(label, _NODES)


def _affinity(affinity: Field, machine: MachineRequest, gpus: int, fidelity: Fidelity) -> None:
    for kind in ("podAffinity", "podAntiAffinity"):
        if affinity.at(kind).value:
            fidelity.dropped(affinity.at(kind), "the preference is about pods of the cluster")
    nodes = affinity.at("nodeAffinity")
    if nodes.at(PREFERRED).value:
        fidelity.dropped(nodes.at(PREFERRED), "the preference is about nodes of the cluster")
    terms = nodes.at(REQUIRED).at("nodeSelectorTerms").items()
    listed = [_types(term) if gpus else () for term in terms]
    wanted = tuple(dict.fromkeys(name for names in listed for name in names)) if all(listed) else ()
    for term in terms:
        for node in term.at("matchFields").items():
            fidelity.refused(node, f"names a node of the cluster; {ONLY_THE_CLUSTER}")
        for requirement in term.at("matchExpressions").items():
            if not wanted or not affine_types(requirement):
                fidelity.dropped(requirement, _NODES)
            elif machine.types and machine.types[0] not in wanted:
                fidelity.refused(requirement, f"leaves out the {machine.types[0]} of the node selector")
            else:
                fidelity.kept(requirement, f"as accelerators: any of {', '.join(machine.types or wanted)}")
    machine.types = machine.types or wanted


def _types(term: Field) -> tuple[str, ...]:
    """The GPU types that a term allows; () if it does not restrict them."""
    return next(filter(None, map(affine_types, term.at("matchExpressions").items())), ())


def _wishes(
    metadata: Field, hints: MachineHints, machine: MachineRequest, fidelity: Fidelity
) -> dict[str, Any]:
    """The user's hints for the instance, under SkyPilot's names."""
    found: dict[str, Any] = {}
    if hints.infra is not None:
        found["infra"] = hints.infra
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
            label = metadata.at(kind).at(PREFIX + name.replace("_", "-"))
            if label.value is not None:
                fidelity.kept(label, f"as {name}")
    return found


def _labels(metadata: Field, hints: MachineHints, fidelity: Fidelity) -> dict[str, str]:
    """Labels for the instance that the cloud accepts, without hints to Starburst."""
    on_aws = (hints.infra or "").partition("/")[0] == "aws"
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
