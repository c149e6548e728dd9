"""Prerequisites that keep a job out of the queue: a hold, other jobs, volumes, a pause, a turn in its array.

A held or blocked job has no deadline; its wait begins when it is queued. The exception is a job whose start
was refused by its site: its earlier deadline stays in force while it pauses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from starburst.core.model.decisions import usd
from starburst.core.model.jobs import JobRecord
from starburst.core.state import State
from starburst.core.steps.transitions import to
from starburst.domain.job import Job, Phase


def shut(state: State, record: JobRecord) -> bool:
    """Move the job to HELD or BLOCKED if a prerequisite is not met; returns whether that was so.

    Checked in order: hold, other jobs, volumes, pause after a failure or a refused start, turn in the array.
    """
    if record.held:
        queue = record.job.queue
        until = f"it is released: starburst release {record.id}, by whoever may submit to queue {queue}"
        _keep_out(state, record, Phase.HELD, state.decide(record.id, "held", until=until).reason)
        return True
    if record.awaits or record.doomed_by:
        those = comes_after(record.job)
        _keep_out(state, record, Phase.BLOCKED, state.decide(record.id, "awaits", those=those).reason)
        return True
    if record.awaits_volumes:
        waits = state.decide(record.id, "awaits-volumes", message=record.awaits_volumes)
        _keep_out(state, record, Phase.BLOCKED, waits.reason)
        return True
    if record.not_before > state.now:
        why = f"was not started: {record.refusal}" if record.refusal else pause_after_failure(record)
        _keep_out(state, record, Phase.BLOCKED, why)
        return True
    place = state.turns.take(record)
    if place is not None:
        turn = state.decide(record.id, "turn", at_once=place.at_once, array=place.array)
        _keep_out(state, record, Phase.BLOCKED, turn.reason, turn=True)
        return True
    return False


def put_off(state: State, record: JobRecord, message: str) -> None:
    """Block a job whose start was refused by its site: it gives up its slots and its turn while it pauses."""
    state.turns.give_up(record)
    to(state, record, Phase.BLOCKED, message=message)


def pause_after_failure(record: JobRecord) -> str:
    """What a job does whose command failed, and what such tries have cost."""
    spent = f"; its tries that failed soon have cost {usd(record.failing_micro_usd)}"
    tries = f"try {record.failures + 1} of {record.job.retries + 1}"
    return f"pauses before {tries}, as its last run failed{spent if record.failing_micro_usd else ''}"


def comes_after(job: Job) -> str:
    """The prerequisites of a job as text for a decision's reason."""
    found = (
        _those(job.after_ok, " if they all succeed", " if that succeeds"),
        _those(job.after_not_ok, " if none of them succeeds", " if that does not succeed"),
        _those(job.after_any, ", however they end", ", however that ends"),
        _those(job.after_start, " once they have all started", " once that has started"),
    )
    return " and ".join(filter(None, found))


def _those(names: Sequence[str], several: str, one: str) -> str:
    return f"{', '.join(names)}{several if len(names) > 1 else one}" if names else ""


def follow(state: State, record: JobRecord, ended: Mapping[str, str]) -> None:
    """Register the prerequisites of a new job.

    `ended` gives the phases of prerequisites that are no longer in the state; one that is in neither counts
    as lost.
    """
    for name in record.job.comes_after:
        other = state.jobs.get(name)
        if other is None or other.phase.is_end:
            _heed(record, name, ended.get(name, "lost") if other is None else other.phase.value)
        elif other.first_started_at is None or _waits_for_end(record.job, name):
            record.awaits += (name,)
            await_(state, record, name)
    if record.doomed_by:
        state.freed.append(record.id)


def _waits_for_end(job: Job, name: str) -> bool:
    """Whether the start of a job that it comes after is not enough."""
    return name in job.after_ok or name in job.after_any or name in job.after_not_ok


def await_(state: State, record: JobRecord, name: str) -> None:
    """Register a job for notification of the end of job `name`."""
    state.dependants.setdefault(name, {})[record.id] = None


def began(state: State, started: JobRecord) -> None:
    """After the first start of a job: free the jobs that come after it once it has started."""
    for name in tuple(state.dependants.get(started.id, ())):
        record = state.jobs.get(name)
        if record is None or record.phase.is_end or _waits_for_end(record.job, started.id):
            continue
        del state.dependants[started.id][name]
        if not state.dependants[started.id]:
            del state.dependants[started.id]
        _no_longer(state, record, started.id)


def over(state: State, ended: JobRecord) -> None:
    """After the end of a job: update the jobs that come after it, and pass on its turn in the array."""
    state.turns.give_up(ended)
    for name in state.dependants.pop(ended.id, ()):
        record = state.jobs.get(name)
        if record is None or record.phase.is_end:
            continue
        _heed(record, ended.id, ended.phase.value)
        _no_longer(state, record, ended.id)


def _no_longer(state: State, record: JobRecord, other: str) -> None:
    """Strike a job off those that `record` waits for."""
    record.awaits = tuple(each for each in record.awaits if each != other)
    state.touch(record)
    if record.doomed_by or not record.awaits:
        state.freed.append(record.id)


def _heed(record: JobRecord, name: str, phase: str) -> None:
    unwanted = record.job.after_not_ok if phase == Phase.SUCCEEDED.value else record.job.after_ok
    if name in unwanted:
        record.doomed_by = record.doomed_by or name


def _keep_out(state: State, record: JobRecord, phase: Phase, message: str, *, turn: bool = False) -> None:
    if not turn:
        state.turns.give_up(record)
    record.deadline, record.wait, record.obstacle = inf, None, None
    state.meter.forget(record.id)
    to(state, record, phase, queued_at=state.now, message=message)
