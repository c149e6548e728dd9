"""Machines, nodes, offers and bills by the keys of `-o json` and of the HTTP API, stable (docs/cli.md)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from starburst.app.daemon.orphan_ledger import OrphanLedger, ReapedMachine
from starburst.app.jobs.job_keys import Keys
from starburst.app.times import iso
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.listings import queries
from starburst.store.listings.costs import CostRow
from starburst.store.store import Store


def cost_keys(by: str, row: CostRow) -> Keys:
    """A row of the bill by `by`."""
    return {
        by: row.name,
        "cost_usd": row.micro_usd / 1_000_000,
        "running_usd": row.running_micro_usd / 1_000_000,
        "cluster_usd": None if row.cluster_micro_usd is None else row.cluster_micro_usd / 1_000_000,
    }


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A rented machine in a listing. Times are scheduler seconds."""

    id: str
    phase: str
    #: Name of the offer, and how many machines of it are rented as one.
    offer: str
    nodes: int
    #: How many of these machines ended while the others ran on.
    nodes_lost: int
    #: Jobs that share its bill.
    jobs: tuple[str, ...]
    #: The hourly price that the bill uses.
    rate: Money
    price_known: bool
    spot: bool
    preempted: bool
    requested_at: float | None
    launched_at: float | None
    ended_at: float | None
    #: Seconds billed so far, and their cost.
    billed_s: float
    cost: Money
    #: Upper bound of the cost: a booting machine counts from its request.
    cost_at_most: Money

    def of_jobs(self, ids: Collection[str]) -> InstanceRow:
        """The same machine, naming only jobs in `ids`."""
        return replace(self, jobs=tuple(job for job in self.jobs if job in ids))


def instance_rows(store: Store, now: float, *, include_ended: bool = False) -> list[InstanceRow]:
    """The rented machines with their bills up to `now`; unclaimed machines come last."""
    ours = queries.instance_records(store, include_ended=include_ended)
    unclaimed = [it for it in OrphanLedger(store).all() if include_ended or it.ended_at is None]
    return [
        *(_instance_row(it, it.phase.value, now) for it in ours),
        *(
            _instance_row(_as_record(it), "reaping" if it.ended_at is None else "reaped", now)
            for it in unclaimed
        ),
    ]


def _as_record(it: ReapedMachine) -> InstanceRecord:
    """An unclaimed machine as a record: none of our jobs pays for it."""
    rate = None if it.rate is None else Money(it.rate)
    offer, at = Offer(it.offer, Resources(), rate), it.launched_at
    return InstanceRecord(it.id, offer, rate or Money(), at, launched_at=at, ended_at=it.ended_at)


def _instance_row(machine: InstanceRecord, phase: str, now: float) -> InstanceRow:
    launched_at, ended_at, cost = machine.launched_at, machine.ended_at, machine.cost(now)
    until, unborn = now if ended_at is None else ended_at, launched_at is None
    at_most = machine.rate.for_seconds(max(0.0, now - machine.requested_at))
    return InstanceRow(
        id=machine.id,
        phase=phase,
        offer=machine.offer.name,
        nodes=machine.offer.nodes,
        nodes_lost=len(machine.lost),
        jobs=tuple(machine.billed_to),
        rate=machine.present_rate,
        price_known=machine.offer.price_per_hour is not None,
        spot=machine.offer.spot,
        preempted=machine.preempted,
        requested_at=machine.requested_at,
        launched_at=launched_at,
        ended_at=ended_at,
        billed_s=0.0 if launched_at is None else max(0.0, until - launched_at),
        cost=cost,
        cost_at_most=at_most if unborn and machine.phase is not InstancePhase.FAILED else cost,
    )


def instance_keys(row: InstanceRow) -> Keys:
    """A rented machine."""
    return {
        "id": row.id,
        "phase": row.phase,
        "offer": row.offer,
        "nodes": row.nodes,
        "nodes_lost": row.nodes_lost,
        "jobs": list(row.jobs),
        "usd_per_hour": float(row.rate.dollars),
        "price_known": row.price_known,
        "spot": row.spot,
        "preempted": row.preempted,
        "requested_at": iso(row.requested_at),
        "launched_at": iso(row.launched_at),
        "ended_at": iso(row.ended_at),
        "billed_s": round(row.billed_s, 3),
        "cost_usd": float(row.cost.dollars),
        "cost_at_most_usd": float(row.cost_at_most.dollars),
    }


def node_keys(node: Node, free: Resources) -> Keys:
    """A node and its free capacity."""
    return {
        "name": node.name,
        **_amounts(node.capacity),
        "free_gpus": free.gpus,
        "free_cpus": free.cpus,
        "free_memory_gib": free.memory_gib,
        "schedulable": node.schedulable,
        "labels": dict(node.labels),
    }


def offer_keys(offer: Offer) -> Keys:
    """An offer of the cloud."""
    price = offer.price_per_hour
    return {
        "name": offer.name,
        **_amounts(offer.resources),
        "usd_per_hour": None if price is None else float(price.dollars),
        "spot": offer.spot,
        "cloud": offer.cloud,
        "region": offer.region,
    }


def _amounts(capacity: Resources) -> Keys:
    return {
        "gpus": capacity.gpus,
        "gpu_type": capacity.gpu_type,
        "cpus": capacity.cpus,
        "memory_gib": capacity.memory_gib,
    }
