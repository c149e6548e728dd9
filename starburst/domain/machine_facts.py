"""Facts about machines to be rented, in one vocabulary with what manifests require of nodes.

The requirements of a node selector and of node affinity are translated into this vocabulary where manifests
are read (`translator.manifests.places`). A fact that is not known of a machine is taken to be as required.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starburst.domain.constraints import Requirement, Term
from starburst.domain.gpu_types import gpu_type, memory_gib
from starburst.domain.resources import MIB_PER_GIB, Resources

#: The facts. A machine has no hostname of the cluster, so no requirement that names one holds.
ARCH, OS, HOSTNAME, INSTANCE_TYPE = "arch", "os", "hostname", "instance type"
REGION, ZONE, CAPACITY = "region", "zone", "capacity type"
GPU_TYPE, GPU_MAKER, GPU_COUNT, GPU_MEMORY = "GPU type", "GPU maker", "GPU count", "GPU memory in MiB"
SPOT, ON_DEMAND = "spot", "on-demand"
#: What a machine must be where a manifest does not say: images are built for it.
COMMON = {ARCH: "amd64", GPU_MAKER: "nvidia"}

#: Fact → value; one that is not known is absent.
MachineFacts = dict[str, str]


def of_gpus(resources: Resources, memory_mib: int) -> MachineFacts:
    """The facts about the type of GPUs; `memory_mib` is of one GPU, 0 if its price list does not say."""
    if not resources.gpus:
        return {GPU_TYPE: ""}
    if not resources.gpu_type:
        return {GPU_MEMORY: str(memory_mib)} if memory_mib else {}
    kind = gpu_type(resources.gpu_type) or resources.gpu_type.upper()
    known_mib = memory_mib or (memory_gib(kind) or 0) * MIB_PER_GIB
    return {GPU_TYPE: kind, **({GPU_MEMORY: str(known_mib)} if known_mib else {})}


def meet(terms: Iterable[Term], facts: MachineFacts, zones: tuple[str, ...] = ()) -> bool:
    """Whether one of the terms holds for a machine, in whichever of these zones it comes up."""
    places = [{**facts, ZONE: zone} for zone in zones] or [facts]
    return any(all(_holds(term, place) for place in places) for term in terms)


def _holds(term: Term, facts: Mapping[str, str]) -> bool:
    said = {each.key for each in term}
    if any(facts.get(fact, usual) != usual for fact, usual in COMMON.items() if fact not in said):
        return False
    return all(each.holds(facts) if each.key in facts else _may_hold(each, facts) for each in term)


def _may_hold(requirement: Requirement, facts: Mapping[str, str]) -> bool:
    """Whether an unknown fact may be as required; the names of zones begin with those of their regions."""
    if (requirement.key, requirement.operator) != (ZONE, "In"):
        return True
    return any(zone.startswith(facts.get(REGION, "")) for zone in requirement.values)


def shown(terms: Iterable[Term]) -> str:
    """The terms as what a machine has, for a message: "has arch arm64 and GPU type A100-80GB or H100"."""
    found = [" and ".join(map(_shown, term)) for term in terms if term]
    usual = f"{ARCH} {COMMON[ARCH]} and GPUs of {COMMON[GPU_MAKER]}, as of every job that names no other"
    return f"has {'; or '.join(dict.fromkeys(found)) or usual}"


def _shown(requirement: Requirement) -> str:
    values = " or ".join(requirement.values)
    key = requirement.key
    return {
        "In": f"{key} {values}",
        "NotIn": f"another {key} than {values}",
        "Exists": f"a {key}",
        "DoesNotExist": f"no {key}",
        "Gt": f"{key} above {values}",
        "Lt": f"{key} below {values}",
    }.get(requirement.operator, f"{key} {requirement.operator} {values}")
