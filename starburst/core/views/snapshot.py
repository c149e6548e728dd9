"""Snapshots: the state as plain data for the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starburst.core.model.budget_values import CapLedger
from starburst.core.model.jobs import JobRecord
from starburst.core.model.load import LoadEstimate
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.parts.queue import Passed
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.policy.budget import Account
from starburst.policy.disciplines.configurations import Configuration
from starburst.policy.estimate_accuracy import UserAccuracy
from starburst.policy.fair import Tags
from starburst.policy.packing.plan import Memory
from starburst.policy.refusals import Refusals

if TYPE_CHECKING:
    from starburst.core.state import State


@dataclass(slots=True)
class Facts:
    """The state besides jobs, instances, nodes and offers. It is small and stored at every step."""

    now: float = 0.0
    arrivals: int = 0
    decided: int = 0
    launches: int = 0
    settled: Money = field(default_factory=Money)
    load: LoadEstimate | None = None
    paused: dict[str, float] = field(default_factory=dict)
    account: Account = field(default_factory=Account)
    #: Configurations of nodes (core/parts/discipline_pass.py); used under vqs and vqs-bf only.
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    #: Earliest time of the next consolidation, and the packer's memory of the last one.
    next_round: float = 0.0
    memory: Memory = field(default_factory=Memory)
    #: Ledger of each cap, by name.
    ledgers: dict[str, CapLedger] = field(default_factory=dict)
    #: Tags of the order "fair".
    tags: Tags = field(default_factory=Tags)
    #: State of the starvation protection (core/steps/starvation.py).
    passed: Passed = field(default_factory=Passed)
    #: Consecutive starts refused by the cluster (core/steps/start_refusals.py).
    refusals: Refusals = field(default_factory=Refusals)
    #: Machines in a row that were billed and on which no job began, by offer.
    wasted: dict[str, int] = field(default_factory=dict)
    #: The queue order that the keys of queued jobs are of; "" in snapshots of older versions.
    order: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete state of a scheduler; jobs that ended and whose bills are final may be left out."""

    facts: Facts = field(default_factory=Facts)
    jobs: Sequence[JobRecord] = ()
    instances: Sequence[InstanceRecord] = ()
    nodes: Sequence[Node] = ()
    offers: Sequence[Offer] = ()
    #: Learnt throughputs (core/model/throughput.py); None if there are none.
    speeds: Mapping[str, Any] | None = None
    #: What users' estimates are worth, by user.
    accuracies: Mapping[str, UserAccuracy] = field(default_factory=dict)


def facts(state: State) -> Facts:
    """The small part of a snapshot."""
    return Facts(
        state.now,
        state.arrivals,
        state.decided,
        state.fleet.launches,
        state.fleet.settled,
        state.load,
        {name: until for name, until in state.fleet.paused.items() if until > state.now},
        state.meter.account,
        state.walk.configurations(),
        state.next_round,
        state.fleet.memory,
        dict(state.ledgers),
        state.tags.copy(),
        state.passed,
        state.refusals,
        dict(state.fleet.wasted),
        state.settings.order,
    )
