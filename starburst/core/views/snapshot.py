"""Snapshots: the state as plain data for the store, and its restoration at a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starburst.core.model.budget_values import CapLedger
from starburst.core.model.jobs import JobRecord
from starburst.core.model.load import LoadEstimate
from starburst.core.model.settings import Settings
from starburst.core.model.throughput import Speeds
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.parts.queue import Passed
from starburst.core.scheduler import Scheduler
from starburst.core.state import State
from starburst.core.steps.budget import cost_of, is_capped
from starburst.core.steps.prerequisites import await_
from starburst.domain.cloud import Offer
from starburst.domain.job import CloudChoice, Phase, Site
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.policy.budget import Account
from starburst.policy.disciplines.configurations import Configuration
from starburst.policy.fair import Tags
from starburst.policy.packing.plan import Memory, Packer
from starburst.policy.refusals import Refusals


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
    )


def restore(settings: Settings, snapshot: Snapshot, packer: Packer | None = None) -> Scheduler:
    """A scheduler with the state of the snapshot; it uses the snapshot's records without copying them.

    Runs and instances are unconfirmed until their site has reported which ones it knows (SiteSynced).
    """
    scheduler = Scheduler(settings, packer)
    state = scheduler.state
    known = snapshot.facts
    state.now, state.arrivals, state.decided = known.now, known.arrivals, known.decided
    if known.load is not None:
        past = known.load
        state.load.sizes, state.load.size_sum = past.sizes, past.size_sum
        state.load.runtimes, state.load.runtime_sum_s = past.runtimes, past.runtime_sum_s
        state.load.runtime_squares = past.runtime_squares
    state.meter.account = known.account
    state.tags, state.passed, state.refusals = known.tags.copy(), known.passed, known.refusals
    state.next_round, state.fleet.memory = known.next_round, known.memory
    names = {cap.name for cap in settings.caps}
    state.ledgers = {name: ledger for name, ledger in known.ledgers.items() if name in names}
    fleet = state.fleet
    fleet.launches, fleet.settled, fleet.paused = known.launches, known.settled, dict(known.paused)
    fleet.wasted = dict(known.wasted)
    if snapshot.speeds is not None:
        fleet.speeds = Speeds.restored(snapshot.speeds)
    fleet.offers = {offer.name: offer for offer in snapshot.offers}
    fleet.instances = {instance.id: instance for instance in snapshot.instances}
    fleet.troubled = {
        instance.id
        for instance in snapshot.instances
        if instance.unreachable_since is not None or instance.unfit_since is not None
    }
    state.unconfirmed_instances = set(fleet.instances)
    state.capacity.update(snapshot.nodes)
    for record in sorted(snapshot.jobs, key=lambda r: r.seq):
        _take_over(state, record)
    state.capped = {record.id: cost_of(record) for record in state.jobs.values() if is_capped(record)}
    state.capacity.keep(state.passed.job_id, state.passed.nodes)
    state.turns.go_round()
    state.homesick = dict.fromkeys(sorted(state.homesick, key=lambda name: state.jobs[name].look_at or 0.0))
    state.walk.rebuild(state.queue, state.capacity, known.configurations)
    state.walk.grew(state.queue)
    return scheduler


def _take_over(state: State, record: JobRecord) -> None:
    state.jobs[record.id] = record
    if record.phase.is_end:
        return
    state.take(record, record.reserved)
    if record.phase is Phase.QUEUED:
        if record.job.cloud is not CloudChoice.ONLY:
            state.queue.add(record)
            state.meter.waits(record)
            if state.prospects is not None:
                state.prospects.suspect(record)
        state.attend(record)
    _gate(state, record)
    if record.phase is Phase.OFFLOADING and not record.slots:
        state.departing[record.id] = state.now
    if record.alive:
        state.unconfirmed_runs.add((record.id, record.attempt))
        if record.started_at is not None:
            state.meter.runs(record)
        if record.site is Site.CLUSTER:
            state.take(record, record.slots)
    if record.phase is Phase.RUNNING and record.look_at is not None:
        if record.look_at <= state.now:
            state.homesick[record.id] = None
        else:
            state.looks.set(record.look_at, record)


def _gate(state: State, record: JobRecord) -> None:
    """Restore the prerequisites of a held or blocked job, and the array turn of any other."""
    for name in record.awaits:
        await_(state, record, name)
    if record.phase is Phase.HELD:
        return
    if record.phase is not Phase.BLOCKED:
        state.turns.take(record)
    elif record.not_before > state.now:
        state.pauses.set(record.tries_at, record)
    elif record.doomed_by or not (record.awaits or record.awaits_volumes or state.turns.wait(record)):
        state.freed.append(record.id)
