"""Transitions between the phases of a job, with the actions at exit and entry.

`to` is the only function that assigns `JobRecord.phase`. It looks up the row of `TRANSITIONS`, leaves the old
phase (clears its data: a pending offload, the T_max timer of a cloud run, the stop reason, a run in the
budget account), applies the caller's changes, enters the new phase (slots, timers, the end of the job) and
marks the record as changed. A step therefore sets only the fields particular to it.

A row from a phase to itself restarts that phase: a job that cannot leave waits on, a blocked job meets the
next prerequisite, a run that is being stopped is stopped for another reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from starburst.core.model.jobs import JobRecord
from starburst.core.state import State
from starburst.domain.job import Phase, Site

_Hook = Callable[[State, JobRecord], None]

#: (from, to): the reasons for the transition.
TRANSITIONS: Mapping[tuple[Phase, Phase], str] = {
    (Phase.QUEUED, Phase.QUEUED): "submitted, or it cannot leave for the cloud and waits on",
    (Phase.QUEUED, Phase.HELD): "its user holds it",
    (Phase.QUEUED, Phase.BLOCKED): "submitted: other jobs, or others of its array, come first",
    (Phase.QUEUED, Phase.STARTING): "placed on the cluster",
    (Phase.QUEUED, Phase.OFFLOADING): "its wait is over, or it does not wait",
    (Phase.QUEUED, Phase.CANCELLED): "cancelled",
    (Phase.HELD, Phase.QUEUED): "released",
    (Phase.HELD, Phase.BLOCKED): "released: other jobs, or others of its array, come first",
    (Phase.HELD, Phase.CANCELLED): "cancelled, or a job that it comes after did not succeed",
    (Phase.BLOCKED, Phase.BLOCKED): "its next prerequisite is not met",
    (Phase.BLOCKED, Phase.HELD): "its user holds it",
    (Phase.BLOCKED, Phase.QUEUED): "nothing keeps it out of the queue any more",
    (Phase.BLOCKED, Phase.CANCELLED): "cancelled, or a job that it comes after did not succeed",
    (Phase.OFFLOADING, Phase.STARTING): "its machines are ready, or there is room on the cluster first",
    (Phase.OFFLOADING, Phase.QUEUED): "no offer or no budget, or its machine did not come up",
    (Phase.OFFLOADING, Phase.CANCELLED): "cancelled",
    (Phase.STARTING, Phase.RUNNING): "its site reports the start",
    (
        Phase.STARTING,
        Phase.STOPPING,
    ): "cancelled, suspended, requeued, over budget, or part of its gang is gone",
    (Phase.STARTING, Phase.BLOCKED): "its site did not start it, or its command failed: it pauses",
    (
        Phase.STARTING,
        Phase.OFFLOADING,
    ): "its command failed before the start was reported: it keeps its machines for the next try",
    (Phase.STARTING, Phase.QUEUED): "its run is lost before the start was reported",
    (Phase.STARTING, Phase.SUCCEEDED): "its run is over before the start was reported",
    (Phase.STARTING, Phase.FAILED): "its run failed before the start was reported, or cannot start at all",
    (
        Phase.RUNNING,
        Phase.STOPPING,
    ): "cancelled, suspended, requeued, returns, moves, over budget, or part of its gang is gone",
    (Phase.RUNNING, Phase.BLOCKED): "its command failed: it pauses before the next try",
    (
        Phase.RUNNING,
        Phase.OFFLOADING,
    ): "its command failed: it keeps its machines for the next try",
    (Phase.RUNNING, Phase.QUEUED): "its run is lost or preempted",
    (Phase.RUNNING, Phase.SUCCEEDED): "exit code 0",
    (Phase.RUNNING, Phase.FAILED): "its command failed, or its runs were lost too often",
    (Phase.STOPPING, Phase.STOPPING): "stopped for another reason: cancelled, or without a grace",
    (
        Phase.STOPPING,
        Phase.STARTING,
    ): "the stopped run is gone: it goes on where it returns or moves to, or on the machines that are left",
    (Phase.STOPPING, Phase.QUEUED): "the stopped run is gone: it waits again",
    (Phase.STOPPING, Phase.BLOCKED): "its command failed while it was stopped: it pauses",
    (Phase.STOPPING, Phase.SUCCEEDED): "exit code 0 before the stop took effect",
    (
        Phase.STOPPING,
        Phase.FAILED,
    ): "its command failed meanwhile, or its runs were lost too often",
    (Phase.STOPPING, Phase.CANCELLED): "the run of a cancelled job is gone",
}


class InvalidTransitionError(RuntimeError):
    """A transition that `TRANSITIONS` does not contain: a bug of the scheduler."""

    def __init__(self, state: State, record: JobRecord, phase: Phase) -> None:
        super().__init__(
            f"{record.id} (attempt {record.attempt}) cannot go from {record.phase.value} to {phase.value} at "
            f"{state.now:g}, on {state.event}; its last decisions: {state.story(record.id)}"
        )


def to(state: State, record: JobRecord, phase: Phase, **changes: object) -> None:
    """Move a job to a phase; `changes` are fields of its record, set between leaving and entering.

    Raises:
        InvalidTransitionError: TRANSITIONS has no such row.
    """
    try:
        on_exit, on_entry = _HOOKS[record.phase, phase]
    except KeyError:
        raise InvalidTransitionError(state, record, phase) from None
    for hook in on_exit:
        hook(state, record)
    record.phase = phase
    for name, value in changes.items():
        setattr(record, name, value)
    for hook in on_entry:
        hook(state, record)
    state.touch(record)


def _leave_queue_account(state: State, record: JobRecord) -> None:
    """Stop charging the job's time as policy-caused delay; what was predicted of its wait is over."""
    state.meter.rests(record)
    if record.wait is not None and record.wait.foretold_at is not None:
        record.wait = replace(record.wait, foretold_at=None)


def _drop_offload(state: State, record: JobRecord) -> None:
    state.departing.pop(record.id, None)
    record.leaving = None
    record.stall = ""


def _drop_look(state: State, record: JobRecord) -> None:
    """Remove the job from the candidates for return; only a running job is one."""
    state.homesick.pop(record.id, None)
    record.look_at = None


def _drop_stop(_state: State, record: JobRecord) -> None:
    record.stop_why = None


def _end_run(state: State, record: JobRecord) -> None:
    state.meter.rests(record)
    if record.wait is not None:
        state.meter.expects(record, state.given_runtime_s(record))
    record.ended_at = state.now
    record.stall = ""


def _drop_slots(_state: State, record: JobRecord) -> None:
    record.slots = ()


def _set_pause(state: State, record: JobRecord) -> None:
    """Set the timer for the end of a blocked job's pause."""
    if record.not_before > state.now:
        state.pauses.set(record.tries_at, record)


def _depart(state: State, record: JobRecord) -> None:
    """Add the job to the present pack window (core/steps/offload.py)."""
    state.departing.setdefault(record.id, state.now)


def _expect_end(state: State, record: JobRecord) -> None:
    """Note the expected end of a run on the cluster, and recheck queued jobs that count on its nodes."""
    if record.site is not Site.CLUSTER:
        return
    state.forecast.expect(record.id, state.released_at(record))
    if state.prospects is not None:
        state.prospects.began(record.slots)


def _end_job(state: State, record: JobRecord) -> None:
    """Mark the record for removal, which follows once the bills of its instances are final."""
    record.ended_at = state.now
    state.meter.forget(record.id)
    state.retired.append(record.id)


#: Actions at the exit from a phase, and at the entry to one.
_EXIT: Mapping[Phase, _Hook] = {
    Phase.QUEUED: _leave_queue_account,
    Phase.OFFLOADING: _drop_offload,
    Phase.RUNNING: _drop_look,
    Phase.STOPPING: _drop_stop,
}
_ENTRY: Mapping[Phase, _Hook] = {
    Phase.HELD: _drop_slots,
    Phase.BLOCKED: _set_pause,
    Phase.QUEUED: _drop_slots,
    Phase.OFFLOADING: _depart,
    Phase.RUNNING: _expect_end,
    Phase.SUCCEEDED: _end_job,
    Phase.FAILED: _end_job,
    Phase.CANCELLED: _end_job,
}


def _exits(old: Phase, new: Phase) -> Iterator[_Hook]:
    if old in _EXIT:
        yield _EXIT[old]
    if old.is_alive and (new is Phase.STARTING or not new.is_alive):
        yield _end_run


def _entries(new: Phase) -> Iterator[_Hook]:
    if new is Phase.BLOCKED:
        yield _drop_slots
    if new in _ENTRY:
        yield _ENTRY[new]


#: The hooks of each row, in order; computed once, as every transition looks them up.
_HOOKS = {(old, new): (tuple(_exits(old, new)), tuple(_entries(new))) for old, new in TRANSITIONS}
