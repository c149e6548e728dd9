"""Checks of a packer's plan; a violation is a defect of the packer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.errors import SimulationError
from sim.packing.inputs import PackedJob
from sim.readers.problems import SHOWN
from starburst.domain.cloud import Offer
from starburst.domain.gpu_types import takes
from starburst.domain.job import Task
from starburst.policy.packing.packers.none import holds, lacking
from starburst.policy.packing.plan import Plan, Situation

_MEND = "take it out or extend the catalog"


class PlanError(Exception):
    """A plan violates the rules of packing; the message names the instance and the task."""


def check_fits(jobs: Iterable[PackedJob], offers: Sequence[Offer]) -> None:
    """Check that some offer holds each task alone.

    Raises:
        SimulationError: some task fits no offer; lists the first jobs.
    """
    why: dict[object, str] = {}
    lines = []
    for job in jobs:
        for task in job.tasks:
            if task.ask not in why:
                why[task.ask] = "" if any(holds(offer, task) for offer in offers) else lacking(task, offers)
            if why[task.ask]:
                lines.append(f"job {job.id}: task {task.rank}: {why[task.ask]}: {_MEND}")
                break
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"and {len(lines) - SHOWN:,} more jobs"]
    if lines:
        raise SimulationError("\n".join(lines))


def check_plan(plan: Plan, situation: Situation) -> None:
    """Check that each task is placed once, on existing instances that hold all their tasks together.

    Raises:
        PlanError: the plan violates this.
        SimulationError: a task fits no instance that can be rented.
    """
    if plan.unplaced:
        lines = [f"job {task.job_id}: task {task.rank}: {why}: {_MEND}" for task, why in plan.unplaced]
        raise SimulationError("\n".join(lines))
    offers = {rented.id: rented.offer for rented in situation.instances}
    if unknown := plan.assignments.keys() - offers.keys():
        raise PlanError(f"{min(unknown)}: no such machine")
    places = [(name, offers[name], tasks) for name, tasks in plan.assignments.items()]
    places += [(f"launch {n}", launch.offer, launch.tasks) for n, launch in enumerate(plan.launches)]
    open_tasks = {task.key for task in situation.tasks}
    for name, offer, tasks in places:
        for task in tasks:
            if task.key not in open_tasks:
                raise PlanError(f"{name}: task {task.key} is not there, or placed twice")
            open_tasks.remove(task.key)
        _check_room(name, offer, tasks)
    if open_tasks:
        raise PlanError(f"task {min(open_tasks)} is nowhere")
    _check_offers((launch.offer for launch in plan.launches), situation.offers)


def _check_room(name: str, offer: Offer, tasks: Sequence[Task]) -> None:
    has, gpus, cpu_milli, memory_mib = offer.resources, 0, 0, 0
    if not tasks:
        raise PlanError(f"{name}: {offer.name} for nobody")
    for task in tasks:
        demand = task.demand(offer.family)
        if demand is None or (demand.gpus and not takes(demand.gpu_type, has.gpu_type)):
            raise PlanError(f"{name}: task {task.key} does not run on {offer.name}")
        gpus, cpu_milli = gpus + demand.gpus, cpu_milli + demand.cpu_milli
        memory_mib += demand.memory_mib
    if gpus > has.gpus or cpu_milli > has.cpu_milli or memory_mib > has.memory_mib:
        keys = ", ".join(str(task.key) for task in tasks)
        raise PlanError(f"{name}: {offer.name} has {has}, not room for all of {keys}")


def _check_offers(launched: Iterable[Offer], offers: Sequence[Offer]) -> None:
    names = {offer.name for offer in offers}
    for offer in launched:
        if offer.name not in names:
            raise PlanError(f"{offer.name} cannot be rented now")
