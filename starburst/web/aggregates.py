"""Aggregates shared by the metrics and the dashboard: spending, GPUs, the wait budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select

from starburst.app.config import Config
from starburst.app.config.caps import caps_of
from starburst.app.config.sites import CloudConfig
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.views.snapshot import Facts
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.store import schema as t
from starburst.store.counters import DecisionCounters
from starburst.store.listings.dashboard_queries import QUEUED, PlacedJob, on_cluster


def rate(machines: Collection[InstanceRecord]) -> Money:
    """Dollars per hour of all machines that have not ended, including those that are still booting."""
    return sum((machine.present_rate for machine in machines), Money())


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """The highest spending rate, dollars per hour; `is_cap`: set by a cap, not by the offers' capacities."""

    rate: Money
    is_cap: bool


def limit(config: Config) -> SpendingLimit | None:
    """The limit on spending per hour for all users together; None is no limit.

    It is the tightest hourly cap without queue and user. Without such a cap it is the price of every
    machine that the offers' capacities allow.
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
    """GPUs of the cluster by state: busy, reserved for a returning job, free, unschedulable (cordoned)."""
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


def overdue(conn: Connection, config: Config, now: float) -> dict[str, int]:
    """Numbers of queued jobs that should have left for the cloud by now, by queue.

    A job that cannot leave when its wait is over gets a later deadline, or none: it is known by its obstacle.
    Where there is no cloud it should not have left.
    """
    c, found = t.jobs.c, Counter[str]()
    late = [and_(c.phase == QUEUED, c.deadline < now)]
    if config.cloud.kind == "skypilot" or config.cloud.known_offers():
        late[0] = and_(late[0], c.obstructed.is_(None))
        late.append(c.obstructed.is_not(None))
    for condition in late:  # each by an index of its own
        counted = select(c.queue, func.count()).where(condition).group_by(c.queue)
        found.update({row[0]: row[1] for row in conn.execute(counted)})
    return dict(found)


@dataclass(frozen=True, slots=True)
class WaitBudget:
    """The wait budget as ratios: target and realised increase of the mean JCT. None is unknown."""

    target: float | None
    realised: float | None


def budget(config: Config, facts: Facts, tallies: DecisionCounters) -> WaitBudget:
    """Target and realised wait budget.

    The target is P, unless `policy.factor` replaces it. The realised value is the increase of the mean JCT
    over No-Wait: from the decayed account of a calibrated budget, otherwise the sum of delays over the sum
    of run times of all jobs so far.
    """
    policy = config.policy
    calibrated = policy.budget_mode == "calibrated"
    target = policy.budget_percent / 100 if calibrated or policy.factor is None else None
    if calibrated:
        known = facts.account.run_s > 0
        return WaitBudget(target, facts.account.spent_percent / 100 if known else None)
    return WaitBudget(target, tallies.delay_s / tallies.run_s if tallies.run_s > 0 else None)
