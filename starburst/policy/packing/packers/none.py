"""No packing: each task gets the cheapest instance that holds it, alone."""

from __future__ import annotations

from collections.abc import Sequence

from starburst.domain.cloud import Offer
from starburst.domain.gpu_types import takes
from starburst.domain.job import Task
from starburst.policy.packing.plan import Plan, Situation, assemble, priced


class NoPacking:
    """One instance per task."""

    def plan(self, situation: Situation) -> Plan:
        """Cheapest offer per new task; an unknown price counts as the highest; ties by catalog order."""
        tasks = {task.key: task for task in situation.tasks}
        kept = {r.id: [tasks[key] for key in r.held if key in tasks] for r in situation.instances}
        at_home = {task.key for held in kept.values() for task in held}
        ranked = cheapest_first(situation.offers)
        launches, unplaced = [], []
        for task in situation.tasks:
            if task.key in at_home:
                continue
            offer = cheapest(task, ranked)
            if offer is None:
                unplaced.append((task, lacking(task, ranked)))
            else:
                launches.append((offer, (task,)))
        return assemble(situation, kept, launches, unplaced=unplaced, reason="one machine per task")


def cheapest_first(offers: Sequence[Offer]) -> list[Offer]:
    """Offers by price, unknown prices last; ties in catalog order."""
    return [offer for offer, _ in sorted(zip(offers, priced(offers), strict=True), key=_rank)]


def _rank(pair: tuple[Offer, Offer]) -> tuple[int, bool]:
    offer, known = pair
    assert known.price_per_hour is not None
    return known.price_per_hour.micro_usd, offer.price_per_hour is None


def holds(offer: Offer, task: Task) -> bool:
    """Whether one instance of this offer holds the task alone."""
    demand = task.demand_on(offer)
    return demand is not None and demand.fits(offer.resources)


def cheapest(task: Task, ranked: Sequence[Offer]) -> Offer | None:
    """The first of `ranked` (cheapest first) that holds the task."""
    return next((offer for offer in ranked if holds(offer, task)), None)


def lacking(task: Task, offers: Sequence[Offer]) -> str:
    """Why no offer holds the task: the first insufficient resource, or the user's rule on offers."""
    if not offers:
        return "the cloud has no offers"
    pairs = [(task.demand(offer.family), offer.resources) for offer in offers]
    able = [
        offer
        for offer, (demand, has) in zip(offers, pairs, strict=True)
        if demand is not None and demand.fits(has)
    ]
    if able:
        return task.offer_rules.why_none(able)
    runs = [(demand, has) for demand, has in pairs if demand is not None]
    if not runs:
        return f"no offer is of a family it runs on ({', '.join(family for family, _ in task.per_family)})"
    of_type = [(d, has) for d, has in runs if not d.gpus or takes(d.gpu_type, has.gpu_type)]
    if not of_type:
        return f"no offer has {runs[0][0].gpu_type} GPUs"
    for name, figures in (
        ("GPUs", [(d.gpus, has.gpus) for d, has in of_type]),
        ("CPUs", [(d.cpus, has.cpus) for d, has in of_type]),
        ("GiB of memory", [(d.memory_gib, has.memory_gib) for d, has in of_type]),
    ):
        if all(asked > has for asked, has in figures):
            asked, best = min(figures, key=lambda pair: pair[0] - pair[1])
            return f"no offer has {asked:g} {name} (the largest has {best:g})"
    return f"no single offer has {of_type[0][0]}"
