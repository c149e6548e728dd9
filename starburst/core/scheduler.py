"""The scheduler: `handle(events, now) → actions`, and nothing else changes its state.

Order within one instant (Starburst semantics): ended runs free their slots; jobs past their deadline leave;
arrivals join the queue; one pass places jobs; the last jobs beyond the queue cap leave. Then cloud runs past
T_max are considered for return, leaving jobs are packed, running cloud jobs are consolidated, and
queued jobs join machines that others need for longer anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isinf
from typing import Any

from starburst.core.model.actions import Action
from starburst.core.model.events import (
    CancelRequested,
    EditRequested,
    EnterRequested,
    Event,
    HoldRequested,
    ImagesReported,
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceStalled,
    InstanceUnfit,
    InstanceUnreachable,
    JobsNotKeptApart,
    JobSubmitted,
    LeaveRuled,
    MachinesLost,
    NodesChanged,
    OffersChanged,
    Progress,
    ReleaseRequested,
    RequeueRequested,
    RunEnd,
    RunEnded,
    RunStalled,
    RunStarted,
    SiteSynced,
    Tick,
    VolumesRuled,
)
from starburst.core.model.settings import Settings
from starburst.core.parts.passes import Start
from starburst.core.state import Changes, State
from starburst.core.steps.admission import (
    edit_requested,
    expire,
    give_up,
    join,
    leave_dear,
    leave_exhausted,
    leave_ruled,
    submitted,
    trim,
)
from starburst.core.steps.budget import is_capped
from starburst.core.steps.budget_enforcement import caps_at, retry_capped, watch_caps
from starburst.core.steps.consolidation import consolidate, consolidate_at
from starburst.core.steps.machines import (
    confirm_instances,
    fence,
    fence_at,
    forgo_unknown,
    instance_failed,
    instance_gone,
    instance_reachable,
    instance_ready,
    instance_stalled,
    instance_unfit,
    instance_unreachable,
    machines_lost,
)
from starburst.core.steps.offload import join_spare, pack, pack_at, recall
from starburst.core.steps.progress import images_reported, not_kept_apart, progressed
from starburst.core.steps.return_home import bring_home
from starburst.core.steps.run_lifecycle import (
    place,
    run_ended,
    run_stalled,
    run_started,
)
from starburst.core.steps.start_refusals import forget, is_shut, probe, probe_at, reopens_at
from starburst.core.steps.starvation import look_again, protect
from starburst.core.steps.unblocking import (
    cancel_requested,
    free,
    hold_requested,
    in_place_at,
    release_requested,
    requeue_requested,
    try_in_place,
    unblock,
    volumes_ruled,
)
from starburst.domain.job import Phase, Site
from starburst.policy.packing.plan import Packer

#: Order of events at one instant: ends, other reports, submissions, then what is about submitted jobs.
RANK: dict[type, int] = {RunEnded: 0, InstanceGone: 0, MachinesLost: 0, JobSubmitted: 2, CancelRequested: 3}
RANK |= {HoldRequested: 3, ReleaseRequested: 3, EnterRequested: 3, RequeueRequested: 3, EditRequested: 3}
RANK |= {VolumesRuled: 3}


class Scheduler:
    """The decisions on one `State`. Deterministic: equal events at equal times give equal decisions."""

    def __init__(self, settings: Settings, packer: Packer | None = None) -> None:
        self.state = State(settings, packer)

    def handle(self, events: Event | list[Event] | tuple[Event, ...], now: float) -> list[Action]:
        """Process the events of `now`, scheduler seconds, and decide; returns the actions.

        Actions and decisions are also collected in the changes of the state until `take_changes`.
        """
        state = self.state
        batch: Sequence[Event] = events if isinstance(events, (list, tuple)) else (events,)
        already = len(state.changes.actions)
        state.pass_to(now)
        if len(batch) > 1:
            batch = sorted(batch, key=lambda event: RANK.get(type(event), 1))
        for event in batch:
            kind = type(event)
            state.event = kind.__name__
            HANDLERS[kind](state, event)
        if state.resting and any(isinstance(e, SiteSynced) and e.site is Site.CLUSTER for e in batch):
            _wake(state)
        if not is_settled(state):
            schedule(state)
        return state.changes.actions[already:]

    def rest(self) -> None:
        """After a restart: place nothing and end no wait until the cluster has synced.

        Nodes that were free before the restart may be in use now, and a job whose deadline passed meanwhile
        is tried on the cluster before it leaves for the cloud. What costs money there and does not depend on
        the cluster goes on: caps hold, and once the cloud has synced, machines of no use are ended, and
        commands that failed are tried again on the machines that they kept.
        """
        self.state.resting = self.state.cloud_unlisted = True

    def take_changes(self) -> Changes:
        """The changes since the last call; also removes ended jobs whose bills are final."""
        state = self.state
        changes, state.changes = state.changes, Changes()
        if changes.decisions:
            state.recent.append(changes.decisions)
        for job_id in state.retired:
            record = state.jobs.get(job_id)
            if record is not None and not record.open_bills:
                del state.jobs[job_id]
        if state.retired:
            state.retired.clear()
        return changes

    def next_wakeup(self) -> float:
        """Time of the next decision without an event, scheduler seconds; infinity if there is none."""
        state = self.state
        if state.resting:
            first = min(caps_at(state), pack_at(state) if state.departing else inf)
            return first if state.cloud_unlisted else min(first, fence_at(state), in_place_at(state))
        if state.freed:
            return state.now
        first = inf
        for timers in (state.deadlines, state.looks, state.pauses):
            if timers.heap:
                first = min(first, timers.next())
        if state.departing:
            first = min(first, pack_at(state))
        if state.refusals.count:
            first = min(first, probe_at(state), reopens_at(state))
        if state.fleet.troubled:
            first = min(first, fence_at(state))
        if state.fleet.shares and state.next_round < first:
            first = min(first, consolidate_at(state))
        if state.meter.calibrated:
            first = min(first, state.meter.exhausted_at(state.now))
        return min(first, caps_at(state)) if state.settings.caps else first


def is_settled(state: State) -> bool:
    """Whether no step of `schedule` has anything to work on: most reports of sites concern one run only."""
    if state.grew or state.joining or state.departing or state.freed or not state.walk.is_idle:
        return False
    now, fleet = state.now, state.fleet
    deadlines, looks, pauses = state.deadlines.heap, state.looks.heap, state.pauses.heap
    return not (
        (deadlines and deadlines[0][0] <= now)
        or (looks and looks[0][0] <= now)
        or (pauses and pauses[0][0] <= now)
        or len(state.queue) > state.queue_limit
        or state.capacity.promised
        or state.patient
        or state.passed.nodes
        or state.refusals.count
        or fleet.troubled
        or (fleet.shares and state.next_round <= now)
        or state.prospects is not None
        or state.forecast.newcomers
        or state.fleet.spare.unseen
        or (state.meter.calibrated and state.meter.excess)
        or state.settings.caps
        or state.resting
    )


def schedule(state: State) -> None:
    """Run the steps of one instant, in the order of the module's docstring.

    Most instants concern few of them; a step that has nothing to work on is not called.
    """
    if state.settings.caps:
        watch_caps(state)
    if state.resting:
        if not state.cloud_unlisted:
            fence(state)
            try_in_place(state)
        free(state)
        _join_arrivals(state)
        if state.departing:
            pack(state)
        return
    if state.refusals.count:
        forget(state)
    room = state.grew
    if state.departing or state.freed or state.pauses.heap or state.fleet.troubled:
        _change_jobs(state)
    _serve_queue(state)
    if state.looks.heap or state.homesick:
        bring_home(state, room=room)
    if state.departing:
        pack(state)
        if not state.walk.is_idle:  # what cannot leave after all is in the queue again
            _place_queued(state)
    if state.fleet.shares:
        consolidate(state)
    if state.fleet.spare.unseen:
        join_spare(state)


def _change_jobs(state: State) -> None:
    """The steps for jobs outside the queue that time or earlier events have set free."""
    if state.fleet.troubled:
        fence(state)
    if state.grew and state.departing:
        recall(state)
    if state.pauses.heap:
        unblock(state)
    if state.freed:
        free(state)


def _serve_queue(state: State) -> None:
    """The steps of the queue: waits that end, arrivals, starts, early departures."""
    deadlines, now = state.deadlines.heap, state.now
    if deadlines and deadlines[0][0] <= now:
        expire(state)
    if state.joining or state.capacity.promised:
        _join_arrivals(state)
    _place_queued(state)
    if state.meter.calibrated:
        leave_dear(state)
        leave_exhausted(state)
    if state.prospects is not None:
        give_up(state, state.prospects)
    if len(state.queue) > state.queue_limit:
        trim(state)
    while deadlines and deadlines[0][0] <= now and expire(state):
        _place_queued(state)


def _join_arrivals(state: State) -> None:
    state.capacity.end_promises()
    for record in state.joining:
        join(state, record)
    state.joining.clear()


def _wake(state: State) -> None:
    """End the rest after the cluster has synced: one pass runs before any wait ends."""
    state.resting = False
    state.grew = True
    _join_arrivals(state)
    _place_queued(state)
    state.grew = True
    if state.capped:
        retry_capped(state)


def _place_queued(state: State) -> None:
    for record, slots, behind in probe(state) if state.refusals.count and is_shut(state) else _walk(state):
        state.dequeue(record)
        place(state, record, slots, behind)


def _walk(state: State) -> Iterable[Start]:
    """One pass over the queue: the jobs that start, in order."""
    if state.settings.max_passes:
        protect(state)
    if state.grew:
        state.grew = False
        state.walk.grew(state.queue)
    whole = () if state.walk.is_idle else state.walk.walk(state.queue, state.capacity)
    return state.elastic.starts(state.queue, state.capacity, whole)


def _nodes_changed(state: State, event: NodesChanged) -> None:
    state.capacity.update(event.nodes)
    look_again(state)
    state.walk.rebuild(state.queue, state.capacity, state.walk.configurations())
    state.grew = True
    if state.prospects is not None:
        state.prospects.nodes_changed()
    state.changes.nodes = True


def _offers_changed(state: State, event: OffersChanged) -> None:
    state.fleet.offers = {offer.name: offer for offer in event.offers}
    state.changes.offers = True
    for record in state.jobs.values():
        stuck = record.phase is Phase.QUEUED and record.obstacle is not None and isinf(record.deadline)
        if stuck or is_capped(record):
            state.set_deadline(record, state.now)


def _synced(state: State, event: SiteSynced) -> None:
    if event.site is Site.CLOUD:
        state.cloud_unlisted = False
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


def _entered(state: State, event: EnterRequested) -> None:
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end:
        state.ignore(event, "no such job, or it is over")
    else:
        state.note_person(record, event.by, "enter")


def _tick(state: State, event: Tick) -> None:
    """Nothing to do: timers are checked at every instant."""


HANDLERS: dict[type, Callable[[State, Any], None]] = {
    JobSubmitted: submitted,
    CancelRequested: cancel_requested,
    HoldRequested: hold_requested,
    ReleaseRequested: release_requested,
    EnterRequested: _entered,
    RequeueRequested: requeue_requested,
    EditRequested: edit_requested,
    LeaveRuled: leave_ruled,
    VolumesRuled: volumes_ruled,
    NodesChanged: _nodes_changed,
    OffersChanged: _offers_changed,
    RunStarted: run_started,
    RunStalled: run_stalled,
    Progress: progressed,
    RunEnded: run_ended,
    SiteSynced: _synced,
    InstanceReady: instance_ready,
    InstanceFailed: instance_failed,
    InstanceGone: instance_gone,
    MachinesLost: machines_lost,
    InstanceUnreachable: instance_unreachable,
    InstanceReachable: instance_reachable,
    InstanceStalled: instance_stalled,
    InstanceUnfit: instance_unfit,
    ImagesReported: images_reported,
    JobsNotKeptApart: not_kept_apart,
    Tick: _tick,
}
