"""What a node selector and required node affinity say of a task's machine: GPU types, price, place, type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starburst.domain import machine_facts as facts
from starburst.domain.constraints import Requirement
from starburst.domain.gpu_types import types_of
from translator.fidelity import Fidelity
from translator.field import ONLY_THE_CLUSTER, Field
from translator.manifests.hints import PREFIX, MachineHints
from translator.manifests.node_rules import PREFERRED
from translator.manifests.places import NodeDemand, is_part, read_place
from translator.tasks.accelerators import KNOWN, sky_name, with_memory

_NODES = "is a label of the cluster's nodes; rented machines have none"
_ONE_OF = "one of several terms; a task has no alternatives"
_NODE = f"names a node of the cluster; {ONLY_THE_CLUSTER}"


@dataclass(slots=True)
class MachineRequest:
    """Requirements on the instance, except its size."""

    #: The user's hints on spot instances and on the place, which come first.
    hints: MachineHints
    gpus: int
    spot: bool = False
    #: SkyPilot's names of the GPU types of which it may have any; () is any type.
    types: tuple[str, ...] = ()
    #: Places of which it may have any; () is any at all.
    infra: tuple[str, ...] = ()
    instance_type: str = ""


def read_machine_place(spec: Field, gpus: int, hints: MachineHints, fidelity: Fidelity) -> MachineRequest:
    """The requirements of a valid pod spec; each has its line in the report."""
    types = tuple(map(sky_name, types_of(hints.gpu_type))) if gpus else ()
    machine = MachineRequest(hints, gpus, types=types, infra=hints.infra)
    place = read_place(spec)
    for demand in place.selector:
        _judge(demand, machine, fidelity)
    _preferences(spec.at("affinity"), fidelity)
    possible = [term for term in place.terms if not any(map(_impossible, term))]
    if len(place.terms) == 1 or not possible:
        for demand in (each for term in place.terms for each in term):
            _judge(demand, machine, fidelity)
    elif len(place.terms) > 1:
        _alternatives(place.terms, possible, machine, fidelity)
    return machine


def _preferences(affinity: Field, fidelity: Fidelity) -> None:
    for kind in ("podAffinity", "podAntiAffinity"):
        if affinity.at(kind).value:
            fidelity.dropped(affinity.at(kind), "the preference is about pods of the cluster")
    preferred = affinity.at("nodeAffinity").at(PREFERRED)
    if preferred.value:
        fidelity.dropped(preferred, "the preference is about nodes of the cluster")


def _impossible(demand: NodeDemand) -> bool:
    """Whether no machine that SkyPilot rents is like this."""
    if demand.fact is None:
        return False
    rented = {facts.ARCH: facts.COMMON[facts.ARCH], facts.OS: "linux", facts.HOSTNAME: ""}
    if demand.fact.key == facts.GPU_TYPE and demand.fact.operator == "In":
        return all(map(is_part, demand.written.values))
    return demand.fact.key in rented and not demand.fact.holds(rented)


def _alternatives(
    terms: Sequence[Sequence[NodeDemand]],
    possible: Sequence[Sequence[NodeDemand]],
    machine: MachineRequest,
    fidelity: Fidelity,
) -> None:
    """Several terms of which one must hold: the GPU types of all of them, if each names some."""
    listed = [_named_types(term) for term in possible]
    wanted = tuple(dict.fromkeys(name for names in listed for name in names)) if all(listed) else ()
    before = machine.types
    for term in terms:
        for demand in term:
            is_type = demand.fact is not None and demand.fact.key == facts.GPU_TYPE
            if is_type and wanted and term in possible and machine.gpus:
                machine.types = before
                _take_types(demand, wanted, machine, fidelity)
            else:
                fidelity.dropped(demand.field, _NODES if demand.fact is None else _ONE_OF)


def _named_types(term: Sequence[NodeDemand]) -> tuple[str, ...]:
    """The GPU types that a term allows; () if it does not restrict them."""
    return next(filter(None, (_types(demand) for demand in term)), ())


def _types(demand: NodeDemand) -> tuple[str, ...]:
    if demand.fact is None or (demand.fact.key, demand.fact.operator) != (facts.GPU_TYPE, "In"):
        return ()
    names = (sky_name(value) for value in demand.written.values if not is_part(value))
    return tuple(dict.fromkeys(name for name in names if name))


def _judge(demand: NodeDemand, machine: MachineRequest, fidelity: Fidelity) -> None:
    """Translate one requirement."""
    if demand.fact is None:
        fidelity.dropped(demand.field, _NODES)
    else:
        _JUDGES[demand.fact.key](demand, demand.fact, machine, fidelity)


def _arch(demand: NodeDemand, _: Requirement, __: MachineRequest, fidelity: Fidelity) -> None:
    if _impossible(demand):
        fidelity.refused(demand.field, f"SkyPilot chooses no machines by their processor; {ONLY_THE_CLUSTER}")
    else:
        fidelity.kept(demand.field, "what SkyPilot's images are")


def _os(demand: NodeDemand, _: Requirement, __: MachineRequest, fidelity: Fidelity) -> None:
    if _impossible(demand):
        fidelity.refused(demand.field, f"rented machines run Linux; {ONLY_THE_CLUSTER}")
    else:
        fidelity.kept(demand.field, "what SkyPilot's images are")


def _hostname(demand: NodeDemand, _: Requirement, __: MachineRequest, fidelity: Fidelity) -> None:
    if _impossible(demand):
        fidelity.refused(demand.field, _NODE)
    else:
        fidelity.kept(demand.field, "a rented machine is none of the cluster's nodes")


def _capacity(demand: NodeDemand, fact: Requirement, machine: MachineRequest, fidelity: Fidelity) -> None:
    allowed = [kind for kind in (facts.SPOT, facts.ON_DEMAND) if fact.holds({facts.CAPACITY: kind})]
    chosen = machine.hints.use_spot
    if chosen is not None and (facts.SPOT if chosen else facts.ON_DEMAND) not in allowed:
        fidelity.dropped(demand.field, f"{PREFIX}use-spot says otherwise")
    elif allowed == [facts.SPOT]:
        machine.spot = True
        fidelity.kept(demand.field, "as use_spot")
    elif allowed:
        fidelity.kept(demand.field, "a task without use_spot is on demand")
    else:
        fidelity.dropped(demand.field, "names neither spot nor on-demand machines")


def _gpu_type(demand: NodeDemand, fact: Requirement, machine: MachineRequest, fidelity: Fidelity) -> None:
    if not machine.gpus:
        fidelity.dropped(demand.field, "the job asks for no GPU")
    elif _impossible(demand):
        fidelity.refused(demand.field, f"parts of a GPU are not rented; {ONLY_THE_CLUSTER}")
    elif fact.operator == "NotIn":
        unwanted = {sky_name(value) for value in demand.written.values}
        machine.types = tuple(name for name in machine.types or sorted(KNOWN) if name not in unwanted)
        fidelity.approximated(demand.field, "as accelerators: the other types that SkyPilot knows")
    else:
        _take_types(demand, _types(demand), machine, fidelity)


def _take_types(
    demand: NodeDemand, wanted: tuple[str, ...], machine: MachineRequest, fidelity: Fidelity
) -> None:
    """Let the machine have any of the wanted types that no other requirement excludes."""
    both = tuple(name for name in machine.types or wanted if name in wanted)
    if machine.types and not both and "nodeSelector[" in demand.field.path:
        fidelity.refused(
            demand.field, f"asks for {wanted[0]}, another label for {machine.types[0]}; keep one of the two"
        )
        return
    if machine.types and not both:
        fidelity.refused(demand.field, f"leaves out the {machine.types[0]} of the node selector")
        return
    machine.types = both
    told = f"as accelerators: {'any of ' if len(both) > 1 else ''}{', '.join(both)}"
    unnamed = [value for value in demand.written.values if is_part(value) or not sky_name(value)]
    if unnamed:
        fidelity.approximated(demand.field, f"{told}; SkyPilot has no {', '.join(unnamed)}")
    elif set(both) <= KNOWN:
        fidelity.kept(demand.field, told)
    else:
        fidelity.approximated(demand.field, f"{told}, if SkyPilot has it (sky gpus list)")


def _gpu_memory(demand: NodeDemand, fact: Requirement, machine: MachineRequest, fidelity: Fidelity) -> None:
    if not machine.gpus:
        fidelity.dropped(demand.field, "the job asks for no GPU")
        return
    found = with_memory(fact, machine.types or sorted(KNOWN))
    if found:
        machine.types = found
        fidelity.approximated(demand.field, f"as accelerators: any of {', '.join(found)}")
    else:
        fidelity.refused(demand.field, f"no type that SkyPilot knows has such memory; {ONLY_THE_CLUSTER}")


def _gpu_count(demand: NodeDemand, fact: Requirement, machine: MachineRequest, fidelity: Fidelity) -> None:
    if fact.holds({facts.GPU_COUNT: str(machine.gpus)}):
        fidelity.kept(demand.field, "a rented machine has as many GPUs as the job asks for")
    else:
        fidelity.dropped(demand.field, "a rented machine has as many GPUs as the job asks for")


def _instance_type(
    demand: NodeDemand, fact: Requirement, machine: MachineRequest, fidelity: Fidelity
) -> None:
    if fact.operator == "In" and len(fact.values) == 1:
        machine.instance_type = fact.values[0]
        fidelity.kept(demand.field, "as instance_type")
    else:
        fidelity.dropped(demand.field, "SkyPilot takes one instance type, or chooses by size")


def _where(demand: NodeDemand, fact: Requirement, machine: MachineRequest, fidelity: Fidelity) -> None:
    if machine.hints.infra:
        fidelity.dropped(demand.field, f"{PREFIX}infra says where")
    elif fact.operator != "In" or len(fact.values) != 1:
        fidelity.dropped(demand.field, f"a task has one place; set {PREFIX}infra")
    else:
        parts = (machine.infra or ("*",))[0].split("/")
        cloud, region, zone = [*parts, "*", "*"][:3]
        if fact.key == facts.REGION:
            region = fact.values[0]
        else:
            zone = fact.values[0]
        place = "/".join((cloud, region, zone)).removesuffix("/*")
        machine.infra = (place,)
        fidelity.kept(demand.field, f"as infra: {place}")


_JUDGES: dict[str, Callable[[NodeDemand, Requirement, MachineRequest, Fidelity], None]] = {
    facts.ARCH: _arch,
    facts.OS: _os,
    facts.HOSTNAME: _hostname,
    facts.CAPACITY: _capacity,
    facts.GPU_TYPE: _gpu_type,
    facts.GPU_MEMORY: _gpu_memory,
    facts.GPU_COUNT: _gpu_count,
    facts.INSTANCE_TYPE: _instance_type,
    facts.REGION: _where,
    facts.ZONE: _where,
}
