"""Whether a job could ever run: on the cluster if it were empty, or on an offer of the cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starburst.core.state import State
from starburst.domain.gpu_types import takes
from starburst.domain.job import CloudChoice, Job
from starburst.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class Satisfiability:
    """Which sites could ever hold a job."""

    cluster: bool
    cloud: bool
    #: What no node and no offer has, "1000 GPUs (the largest has 8)"; "" if one of them holds the job.
    lacks: str = ""


def satisfiability(state: State, job: Job) -> Satisfiability:
    """Whether the cluster or any present offer could hold the job, whatever it says of the cloud.

    Without any known node the cluster is unknown, and counts as large enough.
    """
    cluster = not state.capacity.nodes or state.capacity.ever(job)
    priced = state.fleet.price(job, state.fleet.offers.values())
    cloud = not isinstance(priced, str)
    return Satisfiability(cluster, cloud, "" if cluster or cloud else _lacks(state, job, str(priced)))


def _lacks(state: State, job: Job, no_offer: str) -> str:
    """The resource of which no node and no offer has enough for a task of the job."""
    offers = [] if job.cloud is CloudChoice.NEVER else list(state.fleet.offers.values())
    machines = [node.capacity for node in state.capacity.nodes] + [offer.resources for offer in offers]
    for task in job.tasks:
        if not any(task.fits(machine) for machine in machines):
            return f"no node{' or offer' if offers else ''} has {_shortage(task, machines)}"
    room = f"room for its {len(job.tasks)} tasks" if len(job.tasks) > 1 else f"room for {job.resources}"
    nodes = f"the nodes that its manifest permits have no {room}, even when empty"
    return f"{nodes}, and {no_offer}" if offers else nodes


def _shortage(task: Resources, machines: Sequence[Resources]) -> str:
    if task.gpu_type and task.gpus:
        of_type = [machine for machine in machines if takes(task.gpu_type, machine.gpu_type)]
        if not of_type:
            types = sorted({machine.gpu_type for machine in machines if machine.gpu_type and machine.gpus})
            known = f"there are {', '.join(types)}" if types else "no node or offer says which type it has"
            return f"GPUs of type {task.gpu_type} ({known})"
        machines = of_type
    most_gpus = max((machine.gpus for machine in machines), default=0)
    if task.gpus > most_gpus:
        asked = Resources(task.gpus, gpu_type=task.gpu_type)
        return f"{asked} (the largest has {most_gpus})" if most_gpus else str(asked)
    most_milli = max((machine.cpu_milli for machine in machines), default=0)
    if task.cpu_milli > most_milli:
        return f"{task.cpus:g} CPUs (the largest has {most_milli / 1000:g})"
    most_mib = max((machine.memory_mib for machine in machines), default=0)
    if task.memory_mib > most_mib:
        return f"{task.memory_gib:.4g} GiB of memory (the largest has {most_mib / 1024:.4g})"
    return f"{task} together"
