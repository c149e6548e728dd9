"""The packing gap: the cost of the rented instances relative to a proven lower bound for their tasks.

The bound (policy/packing/covering/cover.py) holds for every packing onto any set of instances, chosen from
the offers and from the rented instances at their present prices; moves are free. With a gap of 12 %, another
packing would save at most 12 % of the bound.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from starburst.core.model.actions import Slot
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.cloud import ANY_OFFER, Offer, OfferRules
from starburst.domain.job import Site, Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.listings import dashboard_queries

#: CPU seconds: the next, more thorough proof is tried only if the previous one took no longer.
PATIENCE_S = 0.6
#: A bound further below the best known cost than this share of it is not shown: it reflects a weak proof, not
#: a bad packing.
LOOSE = 0.25


@dataclass(frozen=True, slots=True)
class GapQuestion:
    """The inputs of the bound: task counts by request, and offers with prices."""

    tasks: tuple[tuple[Resources, OfferRules, int], ...]
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class PackingGap:
    """The present hourly rate, and the lower bound for the same tasks."""

    rate: Money
    least: Money

    @property
    def ratio(self) -> float:
        """(rate - least) / least, at least 0: running instances are a feasible choice too."""
        return max(0.0, (self.rate.micro_usd - self.least.micro_usd) / self.least.micro_usd)


@dataclass(frozen=True, slots=True)
class _Rules:
    offer_rules: OfferRules = ANY_OFFER


@dataclass(frozen=True, slots=True)
class _Renter:
    """The part of a job's record with its slots and its rules for offers."""

    job: _Rules
    slots: tuple[Slot, ...] = ()


def question(
    conn: Connection, machines: Sequence[InstanceRecord], ceiling: Money | None
) -> GapQuestion | None:
    """The inputs of the bound; None if the instances hold no tasks or cost nothing.

    The tasks of a moving job count once. `ceiling` is the highest permitted hourly price of an instance.
    """
    tasks = _held(conn, {machine.id for machine in machines})
    if not tasks or not any(machine.rate.micro_usd for machine in machines):
        return None
    counted = sorted(tasks.items(), key=repr)
    zones = dict.fromkeys(zone for (_, rules), _ in counted for zone in rules.zones)
    listed = _may_be_rented(dashboard_queries.offers(conn), zones, ceiling)
    return GapQuestion(tuple((*ask, n) for ask, n in counted), (*listed, *_as_rented(machines, listed)))


def least(question: GapQuestion, patience_s: float = PATIENCE_S) -> Money | None:
    """The proven lower bound in dollars per hour; tasks that fit no offer are left out.

    None if the bound that a few seconds can prove is too weak.
    """
    # The solver is a large library; it is imported on demand.
    from starburst.policy.packing.classes import classes_of  # noqa: PLC0415
    from starburst.policy.packing.covering.cover import Limits, cover  # noqa: PLC0415
    from starburst.policy.packing.plan import Situation  # noqa: PLC0415

    proofs = (
        Limits(cells=2**16, rough_cells=2**12, rounds=60, nodes=0, columns=0),
        Limits(nodes=0, columns=0),
        Limits(nodes=20, proof_nodes=100),
    )
    classes = classes_of(Situation(_tasks(question), question.offers), gangs=False)
    bound, best = 0, None
    for limits in proofs:
        began = time.thread_time()
        found = cover(classes, classes.counts, limits=limits)
        bound = max(bound, found.bound_micro)
        best = found.cost_micro if best is None else min(best, found.cost_micro)
        if bound >= best or time.thread_time() - began > patience_s:
            break
    return Money(bound) if best and bound >= (1 - LOOSE) * best else None


def _held(conn: Connection, names: set[str]) -> Counter[tuple[Resources, OfferRules]]:
    """Numbers of tasks on these instances by request and rules."""
    if not names:
        return Counter()
    c = t.jobs.c
    placed = c.phase.in_(dashboard_queries.PLACED)
    texts = conn.scalars(select(c.record).where(placed, c.site.is_distinct_from(Site.CLUSTER.value)))
    renters = [codec.decode(_Renter, text) for text in texts]
    return Counter(
        (slot.resources, renter.job.offer_rules)
        for renter in renters
        for slot in renter.slots
        if slot.where in names
    )


def _may_be_rented(offers: Sequence[Offer], zones: Iterable[str], ceiling: Money | None) -> list[Offer]:
    """The offers, and zonal copies of them for tasks that require a zone (core/parts/fleet)."""
    apart = (offer.in_zone(zone) for zone in zones for offer in offers)
    all_ = [*offers, *(offer for offer in apart if offer is not None)]
    return all_ if ceiling is None else list(filter(OfferRules(ceiling=ceiling).affords, all_))


def _as_rented(machines: Iterable[InstanceRecord], listed: Iterable[Offer]) -> Iterable[Offer]:
    """Rented instances at other prices than the offers': they may be kept at these prices."""
    known = {(offer.name, offer.price_per_hour) for offer in listed}
    alone = [machine for machine in machines if machine.offer.nodes == 1]
    ours = {(m.offer.name, m.rate): m.offer for m in alone if (m.offer.name, m.rate) not in known}
    for (name, rate), offer in ours.items():
        yield replace(offer, name=f"{name} at {rate}", price_per_hour=rate, zones=())


def _tasks(question: GapQuestion) -> tuple[Task, ...]:
    return tuple(
        Task(f"{n}-{rank}", 0, resources, offer_rules=rules)
        for n, (resources, rules, count) in enumerate(question.tasks)
        for rank in range(count)
    )
