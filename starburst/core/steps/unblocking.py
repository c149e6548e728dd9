"""Admission of held and blocked jobs: after a release, a pause, a turn, another job's end, a bound volume.

Each admission checks all prerequisites anew (core/steps/prerequisites.py). Also what users ask for that leads
there: to hold a job, to release it, to queue its run again; and to cancel it.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from starburst.core.model.actions import places
from starburst.core.model.events import (
    CancelRequested,
    HoldRequested,
    ReleaseRequested,
    RequeueRequested,
    VolumesRuled,
)
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import StopReason
from starburst.core.state import State
from starburst.core.steps.admission import admit, ask_again, requeue, withdraw
from starburst.core.steps.run_lifecycle import finish, lay_by, release, start, stop
from starburst.core.steps.starvation import look_again
from starburst.core.steps.transitions import to
from starburst.domain.job import CloudChoice, Phase, Site

#: Phases in which a job can still be held.
HOLDABLE = (Phase.BLOCKED, Phase.QUEUED)
#: Phases in which a run can be stopped for its job to queue again.
RUNS = (Phase.STARTING, Phase.RUNNING)


def unblock(state: State) -> None:
    """Admit jobs whose pause after a failure or a refused start is over; some have kept their machines."""
    while (job_id := state.pauses.pop_due(state.now)) is not None:
        record = state.jobs[job_id]
        if record.phase is Phase.OFFLOADING:
            _try_in_place(state, record)
        elif record.refusal:
            ask_again(state, record)
        else:
            admit(state, record)


def try_in_place(state: State) -> None:
    """While the cluster has not synced: only what `unblock` does for jobs that have kept their machines."""
    due = [record for record in _kept_machines(state) if record.not_before <= state.now]
    for record in sorted(due, key=lambda record: (record.not_before, record.seq)):
        _try_in_place(state, record)


def in_place_at(state: State) -> float:
    """When the next job tries again on the machines that it kept; infinity if none is to."""
    return min((record.not_before for record in _kept_machines(state)), default=inf)


def _kept_machines(state: State) -> list[JobRecord]:
    """The jobs that pause on their machines after a failure."""
    here = dict.fromkeys(id_ for machine in state.fleet.instances.values() for id_ in machine.job_ids)
    return [state.jobs[job_id] for job_id in here if state.keeps_machines(state.jobs[job_id])]


def _try_in_place(state: State, record: JobRecord) -> None:
    """Start a job on the machines that it kept, unless they are unreachable or unfit by now."""
    if all(state.fleet.instances[name].is_sound for name in places(record.slots)):
        start(state, record, Site.CLOUD, record.slots)
    else:
        release(state, record)
        to(state, record, Phase.QUEUED)
        admit(state, record)


def free(state: State) -> None:
    """Admit blocked jobs whose prerequisites may be met; cancel those whose prerequisite failed.

    A cancellation may free or doom the jobs that come after it, so the loop runs until `freed` is empty.
    """
    while state.freed:
        record = state.jobs.get(state.freed.popleft())
        if record is None or record.phase not in (Phase.BLOCKED, Phase.HELD):
            continue
        if record.doomed_by:
            end = "succeeded" if record.doomed_by in record.job.after_not_ok else "did not succeed"
            finish(state, record, Phase.CANCELLED, "cancelled", other=record.doomed_by, end=end)
        elif record.phase is Phase.BLOCKED:
            admit(state, record)


def volumes_ruled(state: State, event: VolumesRuled) -> None:
    """Record which nodes the volumes of a job permit; while there is none, the job is out of the queue."""
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end or record.job.cloud is CloudChoice.ONLY:
        state.ignore(event, "no such job, it is over, or it never runs on the cluster")
        return
    if (record.job.volume_affinity, record.awaits_volumes) == (event.affinity, event.waits):
        return
    is_queued = record.phase is Phase.QUEUED
    if is_queued:
        withdraw(state, record)  # its shape changes
    state.reshape(record, replace(record.job, volume_affinity=event.affinity))
    record.awaits_volumes = event.waits
    state.touch(record)
    look_again(state)
    if is_queued:
        requeue(state, record)
    elif record.phase is Phase.BLOCKED and record.not_before <= state.now:
        state.freed.append(record.id)


def cancel_requested(state: State, event: CancelRequested) -> None:
    """Cancel a job at a person's request; its run is stopped first, with its grace unless it ends at once."""
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end:
        state.ignore(event, "no such job, or it is over")
        return
    if record.stop_why is StopReason.CANCEL and not event.now:
        return
    record.cancelled_by = "" if event.by == record.job.user else event.by
    if record.alive:
        state.unreserve(record)
        grace_s = 0.0 if event.now else state.grace_s(record.job)
        why = f"{record.cancelled_by or ('an admin' if event.now else 'its user')} cancelled it"
        record.no_grace = event.now
        state.decide(record.id, "stopping", grace_s=grace_s, why=why)
        stop(state, record, StopReason.CANCEL, grace_s)
        return
    withdraw(state, record)
    release(state, record)
    finish(state, record, Phase.CANCELLED, "cancelled")


def _suspend(state: State, record: JobRecord, why: str) -> None:
    """Take a job off the cloud at its user's request, and hold it. Runs on the cluster are ended by that."""
    if record.phase is Phase.OFFLOADING:
        release(state, record)
        lay_by(state, record)
    elif record.phase in RUNS and record.site is Site.CLOUD:
        grace_s = state.grace_s(record.job)
        state.decide(record.id, "stopping", grace_s=grace_s, why=why)
        stop(state, record, StopReason.SUSPEND, grace_s)


def hold_requested(state: State, event: HoldRequested) -> None:
    """Hold a job at its user's request: it leaves the queue. A job that has left it goes on, unless the
    request is to stop it in the cloud, too.
    """
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end:
        state.ignore(event, "no such job, or it is over")
        return
    if record.held:
        return
    if record.phase not in HOLDABLE and event.stops:
        _suspend(state, record, event.stops)
        return
    if record.phase not in HOLDABLE:
        state.decide(record.id, "not-held", phase=record.phase.value)
        return
    state.note_person(record, event.by, "hold")
    withdraw(state, record)
    record.held = True
    admit(state, record)


def release_requested(state: State, event: ReleaseRequested) -> None:
    """Release a held job: it is admitted with a new wait, as if it were submitted now."""
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end:
        state.ignore(event, "no such job, or it is over")
        return
    if not record.held:
        return
    record.held = False
    state.note_person(record, event.by, "release")
    state.decide(record.id, "released", held_s=state.now - record.queued_at)
    admit(state, record)


def requeue_requested(state: State, event: RequeueRequested) -> None:
    """Stop a run at its user's request, with its grace; then its job queues in its place, with a new wait."""
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end:
        state.ignore(event, "no such job, or it is over")
        return
    if record.phase not in RUNS:
        state.decide(record.id, "not-requeued", phase=record.phase.value)
        return
    grace_s = state.grace_s(record.job)
    state.note_person(record, event.by, "requeue")
    state.decide(record.id, "stopping", grace_s=grace_s, why="its user has it queued again")
    stop(state, record, StopReason.REQUEUE, grace_s)
