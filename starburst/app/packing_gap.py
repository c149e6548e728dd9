"""How much more the rented machines cost than the least that any machines for the tasks on them could cost.

The least is proven (policy/packing/covering/cover.py): no choice of machines from what the cloud sells, and
from what is rented already at what it is paid for, holds these tasks for less per hour, however they are
packed and whatever a move would cost. So a gap of 12 % says that packing could save that much at most.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from starburst.core.model.actions import Slot
from starburst.core.parts.fleet import InstanceRecord
from starburst.domain.cloud import ANY_OFFER, Offer, OfferRules
from starburst.domain.job import Phase, Site, Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.store import codec, dashboard_queries
from starburst.store import schema as t

#: A proof goes on to the next, more thorough, while the last has taken no longer; seconds of one core.
PATIENCE_S = 0.6
#: A bound further below the best machines known than this share of their cost says more of the proof than
#: of them, and is not told.
LOOSE = 0.25


@dataclass(frozen=True, slots=True)
class GapQuestion:
    """What the bound depends on: how many tasks ask for what, and what machines can be had for how much."""

    tasks: tuple[tuple[Resources, OfferRules, int], ...]
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class PackingGap:
    """What is paid per hour, and what no machines for the same tasks cost less than."""

    rate: Money
    least: Money

    @property
    def ratio(self) -> float:
        """How much more is paid, as a share of the least. What runs is a choice too, so it is not below 0."""
        return max(0.0, (self.rate.micro_usd - self.least.micro_usd) / self.least.micro_usd)


@dataclass(frozen=True, slots=True)
class _Rules:
    offer_rules: OfferRules = ANY_OFFER


@dataclass(frozen=True, slots=True)
class _Renter:
    """The part of a job's record that says what it has of which machines, and which it may have."""

    job: _Rules
    slots: tuple[Slot, ...] = ()


def question(
    conn: Connection, machines: Sequence[InstanceRecord], ceiling: Money | None
) -> GapQuestion | None:
    """Which tasks the machines hold, and what is sold; None if they hold none, or cost nothing.

    A job that moves counts once. `ceiling`: no machine that costs more per hour may be rented.
    """
    tasks = _held(conn, {machine.id for machine in machines})
    if not tasks or not any(machine.rate.micro_usd for machine in machines):
        return None
    counted = sorted(tasks.items(), key=repr)
    zones = dict.fromkeys(rules.zone for (_, rules), _ in counted if rules.zone)
    listed = _may_be_rented(dashboard_queries.offers(conn), zones, ceiling)
    return GapQuestion(tuple((*ask, n) for ask, n in counted), (*listed, *_as_rented(machines, listed)))


def least(question: GapQuestion, patience_s: float = PATIENCE_S) -> Money | None:
    """What no machines for these tasks cost less than per hour; a task that no offer holds is left out.

    None if what can be proven in a few seconds is too far from what machines would do.
    """
    # Imported when asked for: the solver is a large library.
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
    """How many tasks on these machines ask for what."""
    if not names:
        return Counter()
    c = t.jobs.c
    placed = c.phase.in_([*dashboard_queries.ALIVE, Phase.OFFLOADING.value])
    texts = conn.scalars(select(c.record).where(placed, c.site.is_distinct_from(Site.CLUSTER.value)))
    renters = [codec.decode(_Renter, text) for text in texts]
    return Counter(
        (slot.resources, renter.job.offer_rules)
        for renter in renters
        for slot in renter.slots
        if slot.where in names
    )


def _may_be_rented(offers: Sequence[Offer], zones: Iterable[str], ceiling: Money | None) -> list[Offer]:
    """The offers, and those of any zone once more in the zones that tasks must be in (core/parts/fleet)."""
    apart = (offer.in_zone(zone) for zone in zones for offer in offers)
    all_ = [*offers, *(offer for offer in apart if offer is not None)]
    return all_ if ceiling is None else list(filter(OfferRules(ceiling=ceiling).admits, all_))


def _as_rented(machines: Iterable[InstanceRecord], listed: Iterable[Offer]) -> Iterable[Offer]:
    """What we have at other prices than the listed ones: it was sold at these, and may be kept."""
    known = {(offer.name, offer.price_per_hour) for offer in listed}
    ours = {(m.offer.name, m.rate): m.offer for m in machines if (m.offer.name, m.rate) not in known}
    for (name, rate), offer in ours.items():
        yield replace(offer, name=f"{name} at {rate}", price_per_hour=rate, zones=())


def _tasks(question: GapQuestion) -> tuple[Task, ...]:
    return tuple(
        Task(f"{n}-{rank}", 0, resources, offer_rules=rules)
        for n, (resources, rules, count) in enumerate(question.tasks)
        for rank in range(count)
    )
