"""The scheduler: `handle(events, now) → actions`, and nothing else changes its state.

Order of things at one instant (Starburst semantics): what ended frees its room; expired waits leave; arrivals
join the queue; one walk places jobs; beyond the queue limit the last jobs leave. Then cloud runs that are due
are looked at for coming home.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isinf
from typing import Any

from starburst.core.model.actions import Action
from starburst.core.model.events import (
    CancelRequested,
    Event,
    HoldRequested,
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnfit,
    InstanceUnreachable,
    JobSubmitted,
    LeaveRuled,
    NodesChanged,
    OffersChanged,
    Progress,
    ReleaseRequested,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
    Tick,
)
from starburst.core.model.phases import StopReason
from starburst.core.parts.passes import Start
from starburst.core.state import Changes, State
from starburst.core.steps.admission import (
    expire,
    give_up,
    join,
    leave_ruled,
    submitted,
    trim,
    unblock,
    withdraw,
)
from starburst.core.steps.budget_enforcement import caps_at, watch_caps
from starburst.core.steps.consolidation import consolidate, consolidate_at
from starburst.core.steps.following import free
from starburst.core.steps.holding import hold_requested, release_requested
from starburst.core.steps.machines import (
    confirm_instances,
    fence,
    fence_at,
    forgo_unknown,
    instance_failed,
    instance_gone,
    instance_reachable,
    instance_ready,
    instance_unfit,
    instance_unreachable,
)
from starburst.core.steps.offload import pack, pack_at, recall
from starburst.core.steps.progress import progressed
from starburst.core.steps.return_home import bring_home
from starburst.core.steps.run_lifecycle import finish, place, release, run_ended, run_started, stop
from starburst.core.steps.start_refusals import is_shut, probe, probe_at
from starburst.core.steps.starvation import protect
from starburst.domain.job import Phase, Site

#: Ends come first at an instant, then submissions, then second thoughts on them.
RANK: dict[type, int] = {
    RunEnded: 0,
    InstanceGone: 0,
    JobSubmitted: 2,
    CancelRequested: 3,
    HoldRequested: 3,
    ReleaseRequested: 3,
}


class Scheduler(State):
    """Deterministic: the same events at the same times give the same decisions."""

    def handle(self, events: Event | Sequence[Event], now: float) -> list[Action]:
        """Take in what happened at `now` (all that happened at that instant) and decide.

        Actions and decisions are also collected in `changes` until `take_changes`.
        """
        batch = events if isinstance(events, Sequence) else (events,)
        already = len(self.changes.actions)
        self.pass_to(now)
        if len(batch) > 1:
            batch = sorted(batch, key=lambda event: RANK.get(type(event), 1))
        for event in batch:
            self.event = type(event).__name__
            HANDLERS[type(event)](self, event)
        if self.resting and any(isinstance(e, SiteSynced) and e.site is Site.CLUSTER for e in batch):
            self._wake()
        self._schedule()
        return self.changes.actions[already:]

    def rest(self) -> None:
        """Decide nothing until the cluster has synced; for a restart.

        What was free then may not be now, and a wait that ran out while nobody watched is no reason to leave
        for the cloud without a look at the cluster first.
        """
        self.resting = True

    def take_changes(self) -> Changes:
        """What changed since the last call. Jobs that are over and paid for are forgotten."""
        changes, self.changes = self.changes, Changes()
        for job_id in self.retired:
            record = self.jobs.get(job_id)
            if record is not None and not record.open_bills:
                del self.jobs[job_id]
        self.retired.clear()
        return changes

    def next_wakeup(self) -> float:
        """When time alone will change something next; infinity if never."""
        if self.resting:
            return caps_at(self)
        if self.freed:
            return self.now
        timers = self.deadlines.next(), self.looks.next(), self.pauses.next()
        return min(
            *timers, pack_at(self), probe_at(self), fence_at(self), consolidate_at(self), caps_at(self)
        )

    def _schedule(self) -> None:
        if self.settings.caps:
            watch_caps(self)
        if self.resting:
            free(self)
            self._join_arrivals()
            pack(self)
            return
        fence(self)
        room = self.grew
        recall(self)
        unblock(self)
        free(self)
        expire(self)
        self._join_arrivals()
        self._place_queued()
        give_up(self)
        trim(self)
        while expire(self):
            self._place_queued()
        bring_home(self, room=room)
        pack(self)
        consolidate(self)

    def _join_arrivals(self) -> None:
        for record in self.joining:
            join(self, record)
        self.joining.clear()

    def _wake(self) -> None:
        """The cluster has synced: a first look at it before any wait counts as over."""
        self.resting = False
        self.grew = True
        self._join_arrivals()
        self._place_queued()
        self.grew = True

    def _place_queued(self) -> None:
        for record, slots, behind in probe(self) if is_shut(self) else self._walk():
            self.dequeue(record)
            place(self, record, slots, behind)

    def _walk(self) -> Iterator[Start]:
        protect(self)
        if self.grew:
            self.grew = False
            self.walk.grew(self.queue)
        return self.walk.walk(self.queue, self.capacity)


def _cancelled(state: State, event: CancelRequested) -> None:
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end or (record.stop_why is StopReason.CANCEL and not event.now):
        return
    if record.alive:
        state.unreserve(record)
        grace_s = 0.0 if event.now else state.grace_s(record.job)
        why = "an admin cancelled it" if event.now else "its user cancelled it"
        record.no_grace = event.now
        state.decide(record.id, "stopping", grace_s=grace_s, why=why)
        stop(state, record, StopReason.CANCEL, grace_s)
        return
    withdraw(state, record)
    release(state, record)
    finish(state, record, Phase.CANCELLED, "cancelled")


def _nodes_changed(state: State, event: NodesChanged) -> None:
    state.capacity.update(event.nodes)
    state.walk.rebuild(state.queue, state.capacity, state.walk.configurations())
    state.grew = True
    if state.prospects is not None:
        state.prospects.nodes_changed()
    state.changes.nodes = True


def _offers_changed(state: State, event: OffersChanged) -> None:
    state.fleet.offers = {offer.name: offer for offer in event.offers}
    state.changes.offers = True
    for record in state.jobs.values():
        if record.phase is Phase.QUEUED and record.obstacle is not None and isinf(record.deadline):
            state.set_deadline(record, state.now)


def _synced(state: State, event: SiteSynced) -> None:
    if event.site is Site.CLOUD:
        forgo_unknown(state, event.instances)
    for job_id, attempt in sorted(state.unconfirmed_runs):
        record = state.current(job_id, attempt)
        if record is not None and record.site is not event.site:
            continue
        state.unconfirmed_runs.discard((job_id, attempt))
        if record is not None and (job_id, attempt) not in event.known:
            message = f"the {event.site.value} has no trace of it"
            run_ended(state, RunEnded(job_id, attempt, RunEnd.LOST, message=message))
    if event.site is Site.CLOUD:
        confirm_instances(state, event.instances)


def _tick(state: State, event: Tick) -> None:
    """Time alone: deadlines and looks are handled at every instant anyway."""


HANDLERS: dict[type, Callable[[State, Any], None]] = {
    JobSubmitted: submitted,
    CancelRequested: _cancelled,
    HoldRequested: hold_requested,
    ReleaseRequested: release_requested,
    LeaveRuled: leave_ruled,
    NodesChanged: _nodes_changed,
    OffersChanged: _offers_changed,
    RunStarted: run_started,
    Progress: progressed,
    RunEnded: run_ended,
    SiteSynced: _synced,
    InstanceReady: instance_ready,
    InstanceFailed: instance_failed,
    InstanceGone: instance_gone,
    InstanceUnreachable: instance_unreachable,
    InstanceReachable: instance_reachable,
    InstanceUnfit: instance_unfit,
    Tick: _tick,
}
