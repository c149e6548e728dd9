"""The life of a run: start, stop, end and loss, and the next phase of its job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isinf

from starburst.core.model.actions import Slot, StartRun, StopRun, TerminateInstance, places
from starburst.core.model.decisions import need_of, where
from starburst.core.model.estimates import elapsed_s, ended_by, run_s
from starburst.core.model.events import RunEnd, RunEnded, RunStalled, RunStarted
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import LeaveReason, StopReason
from starburst.core.parts.elastic import slots_left
from starburst.core.parts.instance_record import OPEN_PHASES
from starburst.core.state import State
from starburst.core.steps.admission import admit, leave, requeue, set_wait
from starburst.core.steps.budget import ends_by_cap
from starburst.core.steps.prerequisites import began, over, pause_after_failure, put_off, shut
from starburst.core.steps.retries import failed_in_cloud, try_again, worth_a_retry
from starburst.core.steps.start_refusals import accepted, refused
from starburst.core.steps.starvation import note_start
from starburst.core.steps.transitions import to
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import CloudChoice, Phase, Site
from starburst.policy.backoff import pause_s

#: Characters of a site's message that are kept.
WORDS = 500
#: Reasons of runs that are stopped because a part of what they ran on is gone.
TAKEN = (StopReason.LOST, StopReason.PREEMPTED)


def start(state: State, record: JobRecord, site: Site, slots: tuple[Slot, ...]) -> None:
    """Begin a new attempt on slots that the job already holds."""
    to(state, record, Phase.STARTING, slots=slots, message="")
    record.site = site
    record.attempt += 1
    record.started_at = record.ended_at = record.ends_at = record.observed_at = None
    state.do(StartRun(record.job.id, record.attempt, site, slots))


def place(state: State, record: JobRecord, slots: tuple[Slot, ...], behind: str) -> None:
    """Start a queued job on the cluster; `behind` is the id of the earlier job it passed, or ""."""
    state.take(record, slots)
    note_start(state, record)
    if record.tag is not None:
        state.tags.dispatch(record.tag)
    record.passed = record.passed or bool(behind)
    waited_s, need = state.now - record.queued_at, need_of(record, slots)
    state.decide(record.id, "placed", where=where(slots), passed=behind, waited_s=waited_s, **need)
    start(state, record, Site.CLUSTER, slots)


def stop(state: State, record: JobRecord, why: StopReason, grace_s: float) -> None:
    """Request the end of the present attempt; it counts as alive until its site confirms the end."""
    assert record.site is not None
    if why is not StopReason.MOVE:
        stay(state, record)
    to(state, record, Phase.STOPPING, stop_why=why)
    state.do(StopRun(record.id, record.attempt, record.site, grace_s))


def run_started(state: State, event: RunStarted) -> None:
    """Record a reported start of an attempt; a cloud run that may return gets a T_max timer."""
    state.unconfirmed_runs.discard((event.job_id, event.attempt))
    record = state.current(event.job_id, event.attempt)
    if record is None or record.started_at is not None:
        state.ignore(event, "no live attempt" if record is None else "its start is known")
        return
    _note_start(state, record)
    state.fleet.proved(record.slots)
    if record.phase is Phase.STARTING:
        to(state, record, Phase.RUNNING)
        if _may_return(state, record):
            record.look_at = state.now + max(0.0, state.settings.t_max_s - record.saved_s)
            state.looks.set(record.look_at, record)
    here = [state.fleet.instances[name] for name in places(record.slots) if name in state.fleet.instances]
    together = next((instance.together for instance in here if instance.together), "")
    more = {"together": together} if together else {}
    state.decide(record.id, "started", where=where(record.slots), attempt=record.attempt, **more)
    state.touch(record)


def run_stalled(state: State, event: RunStalled) -> None:
    """Record what holds up an attempt; it stays where it is until its site reports an end."""
    record = state.current(event.job_id, event.attempt)
    why = " ".join(event.why.split())[:WORDS]
    if record is None or record.stall == why:
        state.ignore(event, "no live attempt" if record is None else "it is known")
        return
    record.stall = why
    if why:
        state.decide(record.id, "stalled", where=where(record.slots), attempt=record.attempt, message=why)
    elif record.started_at is not None:
        state.decide(record.id, "goes-on", where=where(record.slots))
    state.touch(record)


def _note_start(state: State, record: JobRecord) -> None:
    record.started_at = state.now
    state.meter.runs(record, state.released_at(record))
    record.refusals, record.refusal, record.stall = 0, "", ""
    if record.site is Site.CLUSTER:
        accepted(state)
    if record.first_started_at is None:
        record.first_started_at = state.now
        began(state, record)


def _may_return(state: State, record: JobRecord) -> bool:
    settings, job = state.settings, record.job
    if record.site is not Site.CLOUD or record.returned or settings.returns == "never":
        return False
    belongs_there = job.cloud is CloudChoice.ONLY or (settings.offload_cpu_only and not job.resources.gpus)
    return not belongs_there and state.capacity.ever(job)


def run_ended(state: State, event: RunEnded) -> None:
    """Release the slots of an attempt that its site confirms dead, and dispatch on how it ended."""
    state.unconfirmed_runs.discard((event.job_id, event.attempt))
    record = state.current(event.job_id, event.attempt)
    if record is None:
        state.ignore(event, "no live attempt")
        return
    ran_out = event.end in (RunEnd.EXITED, RunEnd.OUT_OF_TIME)
    if record.started_at is None and ran_out:
        _note_start(state, record)
    if record.stop_why is not StopReason.MOVE or ran_out or event.end is RunEnd.REFUSED:
        stay(state, record)
    record.exit_code = event.exit_code
    if ran_out and event.exit_code != 0 and worth_a_retry(record, event):
        _failed(state, record, event)
        return
    if not ran_out and event.end is not RunEnd.REFUSED and _goes_on_smaller(state, record):
        return
    _give_back(state, record)
    if ran_out:
        _exited(state, record, event)
    elif event.end is RunEnd.REFUSED:
        finish(state, record, Phase.FAILED, "failed", message=event.message or "could not be started")
    elif event.end is RunEnd.NOT_STARTED or (event.end is RunEnd.STOPPED and record.phase is Phase.STARTING):
        _not_started(state, record, event)
    elif event.end is RunEnd.SUSPENDED and record.stop_why is None:
        _suspended(state, record, event.message or "its user suspended it")
    elif event.end in (RunEnd.DISPLACED, RunEnd.SUSPENDED):
        gone(state, record, event.message or "its place was taken away", preempted=True)
    else:
        gone(state, record, event.message or record.message)


def _suspended(state: State, record: JobRecord, message: str) -> None:
    """Hold a job whose user suspended it at its site, until it is released; this is no loss."""
    _throw_away(state, record)
    state.decide(record.id, "suspended", attempt=record.attempt, message=message)
    lay_by(state, record)


def lay_by(state: State, record: JobRecord) -> None:
    """Hold a job that is taken off a site, until its user releases it."""
    record.held = True
    to(state, record, Phase.QUEUED)
    shut(state, record)


def _not_started(state: State, record: JobRecord, event: RunEnded) -> None:
    """Block a job whose attempt was not started; it is retried after a pause that grows with each refusal.

    On the cluster this is no loss. In the cloud each try costs money, so there it counts as a loss.
    """
    message = " ".join(event.message.split())[:WORDS] or "its start was given up"
    if event.outage and record.site is Site.CLUSTER:
        refused(state, message)
    if record.stop_why is not None:
        gone(state, record, message, preempted=True)
        return
    _throw_away(state, record)
    record.refusals += 1
    record.refusal = message
    record.losses += record.site is Site.CLOUD
    if record.losses > state.settings.max_losses:
        _give_up(state, record, message)
        return
    pause = state.settings.clock_s(pause_s(record.refusals))
    record.not_before = state.now + pause
    if record.site is Site.CLOUD:
        record.deadline = max(record.deadline, record.not_before)
    told = {"where": where(record.slots), "message": message, "pause_s": pause}
    refusal = state.decide(record.id, "not-started", attempt=record.attempt, **told)
    put_off(state, record, refusal.reason)


def _give_back(state: State, record: JobRecord) -> None:
    """Release what the job holds, at either site."""
    if record.site is Site.CLUSTER:
        state.give(record, record.slots)
    else:
        release(state, record)


def _failed(state: State, record: JobRecord, event: RunEnded) -> None:
    """Try a job again whose command failed, in place or from the queue, unless its failures cost too much."""
    ended_at = ended_by(record, event.ended_at, state.now)
    too_dear = failed_in_cloud(state, record, run_s(record, ended_at))
    if too_dear:
        _give_back(state, record)
        finish(state, record, Phase.FAILED, "failed", message=too_dear, exit_code=event.exit_code)
        record.ended_at = ended_at
        return
    state.unreserve(record)
    if try_again(state, record):
        to(state, record, Phase.OFFLOADING, message=pause_after_failure(record))
        state.departing.pop(record.id)  # it has its machines
        state.pauses.set(record.not_before, record)
    else:
        _give_back(state, record)
        admit(state, record)


def _exited(state: State, record: JobRecord, event: RunEnded) -> None:
    ended_at = ended_by(record, event.ended_at, state.now)
    if event.exit_code == 0:
        runtime_s = elapsed_s(record, ended_at)
        state.ran(record.job, runtime_s)
        finish(state, record, Phase.SUCCEEDED, "succeeded", runtime_s=runtime_s)
    else:
        message = event.message or f"its command ended with exit code {event.exit_code}"
        finish(state, record, Phase.FAILED, "failed", message=message, exit_code=event.exit_code)
    record.ended_at = ended_at


def gone(state: State, record: JobRecord, message: str, *, preempted: bool = False) -> None:
    """Continue after an attempt that is known dead without a result; the stop reason decides how.

    Cancelled jobs end, returning jobs start on the cluster, moving jobs start on their targets, jobs stopped
    by a cap or requeued by their users queue, suspended jobs are held; any other attempt counts as lost or,
    with `preempted`, as taken away by its site.
    """
    _throw_away(state, record)
    if record.stop_why is StopReason.CANCEL:
        finish(state, record, Phase.CANCELLED, "cancelled")
    elif record.stop_why is StopReason.RETURN:
        _save(state, record)
        _come_home(state, record)
    elif record.stop_why is StopReason.MOVE:
        _go_on(state, record)
    elif record.stop_why is StopReason.CAP:
        _save(state, record)
        back(state, record)
    elif record.stop_why is StopReason.SUSPEND:
        _save(state, record)
        state.decide(record.id, "suspended", attempt=record.attempt, message="its user suspended it")
        lay_by(state, record)
    elif record.stop_why is StopReason.REQUEUE:
        _save(state, record)
        admit(state, record)
    else:
        stay(state, record)
        preempted = preempted or record.stop_why is StopReason.PREEMPTED
        _lose(state, record, message or "its machine or supervisor went away", preempted=preempted)


def _throw_away(state: State, record: JobRecord) -> None:
    """Charge the ended attempt's run time as repeated work, unless the job checkpoints."""
    if record.started_at is not None and not record.job.checkpoint:
        ours = record.stop_why is StopReason.RETURN
        state.meter.repeat(state.now - record.started_at, ours=ours)


def release(state: State, record: JobRecord) -> None:
    """Release the job's present instances, except those that are targets of its move."""
    _vacate(state, record, record.slots, record.moving)


def _vacate(state: State, record: JobRecord, slots: Iterable[Slot], kept: Iterable[Slot]) -> None:
    """Release the instances of some slots except `kept` ones; an instance without jobs is terminated."""
    keeps = {slot.where for slot in kept}
    left = [slot for slot in slots if slot.where not in keeps]
    for instance in state.fleet.release(record.id, left, state.now):
        state.touch_instance(instance)
        if not instance.job_ids and instance.phase in OPEN_PHASES:
            instance.phase = InstancePhase.TERMINATING
            state.decide(instance.id, "terminating")
            state.do(TerminateInstance(instance.id))


def hold(state: State, record: JobRecord, slots: Sequence[Slot]) -> None:
    """Assign these slots to the job; they replace what it held of their instances."""
    record.open_bills += state.fleet.hold(record.id, slots, state.now)
    state.touch(record)
    for name in places(slots):
        if name in state.fleet.instances:
            state.touch_instance(state.fleet.instances[name])


def stay(state: State, record: JobRecord) -> None:
    """Drop the job's planned move, if any, and release the slots held at its target."""
    if record.moving:
        targets, record.moving = record.moving, ()
        _vacate(state, record, targets, record.slots)
        hold(state, record, record.slots)


def set_off(state: State, record: JobRecord) -> None:
    """Stop a moving job, with its grace to save its work, once all its target instances are ready."""
    grace_s = state.grace_s(record.job)
    state.decide(record.id, "stopping", grace_s=grace_s, why="all that it moves to is up")
    stop(state, record, StopReason.MOVE, grace_s)


def finish(state: State, record: JobRecord, phase: Phase, kind: str, **numbers: object) -> None:
    """End the job in the given phase and notify the jobs that come after it."""
    state.unreserve(record)
    if record.cancelled_by and phase is Phase.CANCELLED:
        numbers["by"] = record.cancelled_by
    to(state, record, phase, message=state.decide(record.id, kind, **numbers).reason)
    over(state, record)


def _lose(state: State, record: JobRecord, message: str, *, preempted: bool) -> None:
    """Requeue a job whose run was lost, with its old deadline; it fails after more than `max_losses` losses.

    Preempted runs do not count as losses.
    """
    record.losses += not preempted
    if record.losses > state.settings.max_losses:
        _give_up(state, record, message)
        return
    state.decide(record.id, "lost", attempt=record.attempt, message=message)
    if isinf(record.deadline) and record.had_deadline:
        record.deadline = state.now  # its wait was over and no offer held it; offers may have changed
    record.deadline = max(record.deadline, state.now)
    record.queued_at = state.now
    requeue(state, record)
    state.elastic.note(record)


def _goes_on_smaller(state: State, record: JobRecord) -> bool:
    """Begin an elastic gang at once on the machines that are left of its instance; whether they hold it."""
    instance, lost = state.fleet.instances.get(record.slots[0].where), record.stop_why is StopReason.LOST
    slots = slots_left(record.job, instance) if instance is not None and record.stop_why in TAKEN else ()
    if not slots or record.losses + lost > state.settings.max_losses or ends_by_cap(state, record, slots):
        return False
    _throw_away(state, record)
    record.losses += lost
    there = {"where": where(slots), "fewer": len(slots), "of": len(record.job.tasks)}
    state.decide(record.id, "shrinks", attempt=record.attempt, message=record.message, **there)
    hold(state, record, slots)
    start(state, record, Site.CLOUD, slots)
    return True


def _give_up(state: State, record: JobRecord, message: str) -> None:
    message = f"its runs were lost {record.losses} times, at last because {message}"
    finish(state, record, Phase.FAILED, "failed", message=message)


def _come_home(state: State, record: JobRecord) -> None:
    """After the end of a returning cloud run: start on the reserved slots, or queue with a second wait."""
    record.returned = True
    if not state.capacity.up(record.reserved):
        state.unreserve(record)  # a reserved node became unschedulable or left
    slots, record.reserved = record.reserved, ()
    if slots:
        record.queued_at = state.now
        state.decide(record.id, "placed", where=where(slots), need=record.need, passed="", waited_s=0.0)
        start(state, record, Site.CLUSTER, slots)
    else:
        set_wait(state, record)
        requeue(state, record)


def back(state: State, record: JobRecord) -> None:
    """Queue a job that a cap took off its instances, with its deadline now: it leaves once the cap allows."""
    record.queued_at = record.deadline = state.now
    requeue(state, record)


def _save(state: State, record: JobRecord) -> None:
    """Record the elapsed time as saved work if the job checkpoints."""
    if record.job.checkpoint:
        record.saved_s = elapsed_s(record, state.now)


def _go_on(state: State, record: JobRecord) -> None:
    """After the end of a moving run: start the next attempt on the target slots, which are already held.

    If the target was lost meanwhile, the job leaves for the cloud anew.
    """
    _save(state, record)
    state.meter.repeat(state.settings.move_s, ours=True)
    slots, record.moving = record.moving, ()
    if slots:
        record.moves += 1
        hold(state, record, slots)
        start(state, record, Site.CLOUD, slots)
    else:
        to(state, record, Phase.QUEUED)
        leave(state, record, LeaveReason.STRANDED)
