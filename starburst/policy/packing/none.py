"""No packing: each task gets the cheapest machine that holds it, alone."""

from __future__ import annotations

from collections.abc import Sequence

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.plan import Launch, Plan


class NoPacking:
    """One instance per task."""

    def plan(self, tasks: Sequence[Task], offers: Sequence[Offer]) -> Plan:
        """Cheapest offer per task; an unknown price counts as the dearest, ties go by name."""
        ranked = sorted(offers, key=lambda offer: offer.rank)
        launches, unplaced = [], []
        for task in tasks:
            offer = cheapest(task.resources, ranked)
            if offer is None:
                unplaced.append((task, lacking(task.resources, ranked)))
            else:
                launches.append(Launch(offer, (task,)))
        return Plan(tuple(launches), tuple(unplaced))


def cheapest(demand: Resources, ranked: Sequence[Offer]) -> Offer | None:
    """The first of `ranked` (cheapest first) that holds the demand."""
    return next((offer for offer in ranked if demand.fits(offer.resources)), None)


def lacking(demand: Resources, offers: Sequence[Offer]) -> str:
    """Why no offer holds the demand: the first resource that none has enough of."""
    if not offers:
        return "the cloud has no offers"
    of_type = [
        o.resources for o in offers if not demand.gpus or demand.gpu_type in ("", o.resources.gpu_type)
    ]
    if not of_type:
        return f"no offer has {demand.gpu_type} GPUs"
    for name, asked, best in (
        ("GPUs", demand.gpus, max(r.gpus for r in of_type)),
        ("CPUs", demand.cpus, max(r.cpus for r in of_type)),
        ("GiB of memory", demand.memory_gib, max(r.memory_gib for r in of_type)),
    ):
        if asked > best:
            return f"no offer has {asked:g} {name} (the largest has {best:g})"
    return f"no single offer has {demand}"
