"""What a place must be like: node selector and required node affinity, in facts about machines to be rented.

One reader for jobs that leave (`OfferRules.requires`) and for translated tasks. On nodes the requirements
hold as they are written, by the labels of the nodes.

Sources: Kubernetes documentation, "Well-Known Labels"; labels of GKE, EKS, AKS, Karpenter and
GPU Feature Discovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from starburst.domain import machine_facts as facts
from starburst.domain.constraints import NODE_NAME, Requirement, Term
from starburst.domain.gpu_types import gpu_type, is_arm, types_of
from starburst.domain.resources import Resources
from translator.field import Field
from translator.manifests.gpus import LABELS, OTHER_LABELS
from translator.podspec import REQUIRED

_KEYS = {
    **dict.fromkeys(("kubernetes.io/arch", "beta.kubernetes.io/arch"), facts.ARCH),
    **dict.fromkeys(("kubernetes.io/os", "beta.kubernetes.io/os"), facts.OS),
    **dict.fromkeys(("kubernetes.io/hostname", NODE_NAME), facts.HOSTNAME),
    **dict.fromkeys(
        ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"), facts.INSTANCE_TYPE
    ),
    **dict.fromkeys(
        ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"), facts.REGION
    ),
    **dict.fromkeys(
        (
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
            "topology.ebs.csi.aws.com/zone",
            "topology.gke.io/zone",
        ),
        facts.ZONE,
    ),
    "nvidia.com/gpu.memory": facts.GPU_MEMORY,
    **dict.fromkeys(("nvidia.com/gpu.count", "karpenter.k8s.aws/instance-gpu-count"), facts.GPU_COUNT),
    **dict.fromkeys((*LABELS, *OTHER_LABELS), facts.GPU_TYPE),
}

#: Labels of spot nodes, in lower case: values of spot nodes, and of others.
_CAPACITY = {
    "cloud.google.com/gke-spot": (("true",), ("false",)),
    "cloud.google.com/gke-preemptible": (("true",), ("false",)),
    "cloud.google.com/gke-provisioning": (("spot", "preemptible"), ("standard",)),
    "eks.amazonaws.com/capacitytype": (("spot",), ("on_demand",)),
    "karpenter.sh/capacity-type": (("spot",), ("on-demand", "reserved")),
    "kubernetes.azure.com/scalesetpriority": (("spot",), ("regular",)),
}
#: Those that only spot nodes have.
_SPOT_ONLY = frozenset(
    ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible", "kubernetes.azure.com/scalesetpriority")
)

ASSUMED = "no price list tells this label; a rented machine is taken to be as it requires"
STAYS = "names a node of the cluster; no rented machine is one, so the job stays on the cluster"


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """One requirement: where it stands, as written, and as a fact.

    None is a label that only nodes of the cluster have.
    """

    field: Field
    written: Requirement
    fact: Requirement | None


@dataclass(frozen=True, slots=True)
class Place:
    """What a node selector and required node affinity say: all of the selector, and one of the terms."""

    selector: tuple[NodeDemand, ...]
    terms: tuple[tuple[NodeDemand, ...], ...]

    @property
    def demands(self) -> Iterator[NodeDemand]:
        """All of them."""
        yield from self.selector
        for term in self.terms:
            yield from term


def read_place(spec: Field) -> Place:
    """The demands of a valid pod spec; what is malformed is passed over, as `read_rules` refuses it."""
    selector = tuple(
        _demand(label, Requirement(key, "In", (label.value,)))
        for key, label in spec.at("nodeSelector").entries().items()
        if isinstance(label.value, str)
    )
    required = spec.at("affinity").at("nodeAffinity").at(REQUIRED)
    terms = required.at("nodeSelectorTerms").items()
    return Place(selector, tuple(tuple(_of_term(term)) for term in terms))


def _of_term(term: Field) -> Iterator[NodeDemand]:
    for kind in ("matchExpressions", "matchFields"):
        for each in term.at(kind).items():
            key, operator, values = (each.at(name).value for name in ("key", "operator", "values"))
            if isinstance(key, str) and isinstance(operator, str) and isinstance(values, list | None):
                texts = tuple(value for value in values or () if isinstance(value, str))
                yield _demand(each, Requirement(key, operator, texts))


def _demand(field: Field, written: Requirement) -> NodeDemand:
    return NodeDemand(field, written, fact_of(written))


def told_by(label: str) -> str:
    """The fact that a label of a node tells; "" if it tells none, or whether the node is spot."""
    return _KEYS.get(label, "")


def fact_of(written: Requirement) -> Requirement | None:
    """The requirement in terms of a fact; None if its label tells none."""
    if written.key.lower() in _CAPACITY:
        return _capacity(written)
    key = _KEYS.get(written.key)
    if key == facts.GPU_TYPE:
        return _gpu_type(written)
    return None if key is None else Requirement(key, written.operator, written.values)


def _capacity(written: Requirement) -> Requirement | None:
    key = written.key.lower()
    if written.operator in ("Exists", "DoesNotExist"):
        if key not in _SPOT_ONLY:
            return None
        return Requirement(facts.CAPACITY, "In" if written.operator == "Exists" else "NotIn", (facts.SPOT,))
    spot, others = _CAPACITY[key]
    values = tuple(
        facts.SPOT if value.lower() in spot else facts.ON_DEMAND if value.lower() in others else value
        for value in written.values
    )
    return Requirement(facts.CAPACITY, written.operator, values)


def _gpu_type(written: Requirement) -> Requirement | None:
    """The models, if one is named; parts of GPUs and unnamed models are types that nobody offers."""
    if written.operator not in ("In", "NotIn"):
        return None
    names = [part_or_type(value) for value in written.values]
    if not any(names):
        return None
    values = [name or value.upper() for name, value in zip(names, written.values, strict=True)]
    return Requirement(facts.GPU_TYPE, written.operator, tuple(dict.fromkeys(values)))


def part_or_type(value: str) -> str:
    """A label's value as the type of a GPU; a part of one keeps its whole name, and "" names no model."""
    return value.upper() if is_part(value) else gpu_type(value)


def is_part(value: str) -> bool:
    """Whether the value of a GPU label names a MIG slice."""
    return "-MIG-" in value.upper()


def requirements(place: Place, resources: Resources, *, amd: bool, any_capacity: bool) -> tuple[Term, ...]:
    """The terms of which a rented machine must meet one; () if there are none.

    `resources` name the GPU types that the selector, or an annotation, requires. `amd`: it needs GPUs of
    AMD. `any_capacity`: spot or on-demand was chosen otherwise.
    """
    found: list[Term] = []
    for term in [term for term in place.terms if term] or ((),):  # an empty term is met by no node
        known = [each.fact for each in (*place.selector, *term) if each.fact is not None]
        known = [each for each in known if not (any_capacity and each.key == facts.CAPACITY)]
        if amd:
            known.append(Requirement(facts.GPU_MAKER, "In", ("amd",)))
        if any(map(is_arm, (*_models(known), *types_of(resources.gpu_type)))) and all(
            each.key != facts.ARCH for each in known
        ):
            known.append(Requirement(facts.ARCH, "In", ("amd64", "arm64")))
        counted = Requirement(facts.GPU_TYPE, "In", (resources.gpu_type,))
        found.append(tuple(each for each in known if each != counted))
    return tuple(dict.fromkeys(found)) if any(found) else ()


def _models(term: Iterable[Requirement]) -> Iterator[str]:
    for each in term:
        if (each.key, each.operator) == (facts.GPU_TYPE, "In"):
            yield from each.values


def note_assumptions(place: Place) -> None:
    """Say which demands of a job that may leave are taken for granted, and which keep it on the cluster."""
    stuck = [demand for demand in place.selector if _names_node(demand)]
    if place.terms and all(any(map(_names_node, term)) for term in place.terms):
        stuck += [demand for term in place.terms for demand in term if _names_node(demand)]
    for demand in place.demands:
        assumed = demand.fact is None and demand.written.operator not in ("NotIn", "DoesNotExist")
        if demand.field.report.leaves and assumed:
            demand.field.note_away(ASSUMED)
        elif demand.field.report.leaves and demand in stuck:
            demand.field.note(STAYS)


def _names_node(demand: NodeDemand) -> bool:
    return demand.fact is not None and (demand.fact.key, demand.fact.operator) == (facts.HOSTNAME, "In")
