"""What a whole pod asks for: its effective requests, as Kubernetes computes them.

Source: Kubernetes documentation, "Init Containers" (resource sharing within containers), "Sidecar
Containers", "Pod Overhead" and "Assign Pod-level CPU and memory resources".
"""

from __future__ import annotations

from fractions import Fraction

from starburst.domain.resources import Resources
from translator.field import Field
from translator.manifests.amounts import GPUS, RESOURCES, Quantities, amounts, as_resources, container_amounts


def pod_resources(spec: Field) -> Resources:
    """All containers together, or the greediest moment of the start if that needs more; plus the overhead."""
    containers = spec.at("containers").items()
    running = _sum([container_amounts(each.at("resources")) for each in containers])
    sidecars: Quantities = {}
    starting: Quantities = {}
    for each in spec.at("initContainers").items():
        asked = _sum([sidecars, container_amounts(each.at("resources"))])
        starting = _most(starting, asked)  # init containers run one by one, beside the sidecars before them
        if is_sidecar(each):
            sidecars = asked
    asked = _most(_sum([running, sidecars]), starting)
    asked = _sum([_of_whole_pod(spec.at("resources"), asked), amounts(spec.at("overhead"))])
    alone = len(containers) == 1 and not spec.at("initContainers").value
    return as_resources(asked, containers[0].at("resources") if alone else spec.at("containers"))


def is_sidecar(init_container: Field) -> bool:
    """Whether an init container stays while the others run."""
    return init_container.at("restartPolicy").value == "Always"


def _of_whole_pod(resources: Field, asked: Quantities) -> Quantities:
    """Requests of the whole pod stand above those of its containers, its limits where there are neither."""
    resources.check(RESOURCES)
    limits, requests = amounts(resources.at("limits")), amounts(resources.at("requests"))
    for field in (resources.at("limits"), resources.at("requests")):
        for name in GPUS:
            if field.at(name).value is not None:
                field.at(name).refuse("GPUs are given to containers, not to a pod; move it")
    return {**limits, **asked, **requests}


def _sum(parts: list[Quantities]) -> Quantities:
    total: Quantities = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _most(one: Quantities, other: Quantities) -> Quantities:
    zero = Fraction(0)
    return {name: max(one.get(name, zero), other.get(name, zero)) for name in {**one, **other}}
