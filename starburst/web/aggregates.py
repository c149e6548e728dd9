"""Figures that the metrics and the dashboard share: spending, GPUs, the budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from starburst.app.config import Config
from starburst.app.config.caps import caps_of
from starburst.app.config.sites import CloudConfig
from starburst.core.parts.fleet import InstanceRecord
from starburst.core.views.snapshot import Facts
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.store.counters import DecisionCounters
from starburst.store.dashboard_queries import PlacedJob, on_cluster


def rate(machines: Collection[InstanceRecord]) -> Money:
    """Dollars per hour of all machines not known to have ended, those that still come up included."""
    return sum((machine.rate for machine in machines), Money())


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """Dollars per hour, and whether a cap says so; else it is all that the offers' capacities let us rent."""

    rate: Money
    is_cap: bool


def limit(config: Config) -> SpendingLimit | None:
    """The most that is meant to be spent per hour by everybody; None is no limit.

    The tightest hourly cap on everybody. Only where there is none, what all costs that can be rented.
    """
    caps = [cap.limit for cap in caps_of(config.caps) if cap.per == "hour" and not (cap.queue or cap.user)]
    if caps:
        return SpendingLimit(min(caps), is_cap=True)
    if not isinstance(config.cloud, CloudConfig):
        return None
    sold = [(entry.offer.price_per_hour, entry.capacity) for entry in config.cloud.catalog()]
    known = [(price, capacity) for price, capacity in sold if capacity is not None]
    if len(known) < len(sold):
        return None
    dearest = max((price for price, _ in known if price is not None), default=Money())
    return SpendingLimit(
        sum(((price or dearest) * capacity for price, capacity in known), Money()), is_cap=False
    )


def gpus(nodes: Iterable[Node], holders: Iterable[PlacedJob]) -> dict[str, int]:
    """The cluster's GPUs: busy, reserved for a job on its way home, free, or free but cordoned off."""
    busy, reserved = Counter[str](), Counter[str]()
    for holder in holders:
        for slot in on_cluster(holder):
            busy[slot.where] += slot.resources.gpus
        for slot in holder.reserved:
            reserved[slot.where] += slot.resources.gpus
    states = dict.fromkeys(("busy", "reserved", "free", "unschedulable"), 0)
    for node in nodes:
        states["busy"] += busy[node.name]
        states["reserved"] += reserved[node.name]
        left = max(0, node.capacity.gpus - busy[node.name] - reserved[node.name])
        states["free" if node.schedulable else "unschedulable"] += left
    return states


@dataclass(frozen=True, slots=True)
class WaitBudget:
    """The wait budget as shares: what was promised, and what jobs were delayed by. None is not known."""

    target: float | None
    realised: float | None


def budget(config: Config, facts: Facts, tallies: DecisionCounters) -> WaitBudget:
    """P, unless a factor is set in its place, and the increase of mean JCT over No-Wait that it came to.

    A calibrated budget's account knows it, older times faded. Otherwise it is the delays of all jobs so far
    over their run times.
    """
    policy = config.policy
    calibrated = policy.budget_mode == "calibrated"
    target = policy.budget_percent / 100 if calibrated or policy.factor is None else None
    if calibrated:
        known = facts.account.run_s > 0
        return WaitBudget(target, facts.account.spent_percent / 100 if known else None)
    return WaitBudget(target, tallies.delay_s / tallies.run_s if tallies.run_s > 0 else None)
