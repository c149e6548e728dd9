"""Events of instances (ready, failed, gone, in part lost, unreachable, unfit) and their effects on jobs."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from starburst.core.model.actions import Slot, TerminateInstance
from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceStalled,
    InstanceUnfit,
    InstanceUnreachable,
    MachinesLost,
)
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import LeaveReason, StopReason
from starburst.core.parts.elastic import slots_left
from starburst.core.parts.instance_record import OPEN_PHASES, InstanceRecord
from starburst.core.state import State
from starburst.core.steps.admission import leave, requeue
from starburst.core.steps.budget import settle
from starburst.core.steps.run_lifecycle import TAKEN, WORDS, gone, release, set_off, start, stay, stop
from starburst.core.steps.transitions import to
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import Phase, Site
from starburst.domain.money import Money


def instance_ready(state: State, event: InstanceReady) -> None:
    """Mark an instance as ready; a job starts, or sets off on its move, once all its instances are ready.

    An instance that costs more than `max_rate` is released before anything starts on it. If that is known
    only later, what runs there is stopped, with its grace, and its jobs leave for another.
    """
    seen = event.instance_id not in state.unconfirmed_instances
    state.unconfirmed_instances.discard(event.instance_id)
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None:
        state.ignore(event, "no such machine, or it has ended")
        return
    instance.launched_at = event.launched_at
    is_dearer = _reprice(state, instance, event.rate)
    state.touch_instance(instance)
    if instance.phase is InstancePhase.READY and is_dearer and is_too_dear(state, instance):
        instance_unfit(state, InstanceUnfit(instance.id, _too_dear(state, instance)))
        _send_elsewhere(state, instance, f"{instance.id} is too dear")
    if instance.phase is not InstancePhase.LAUNCHING:
        return
    if seen:  # else it may have come up long ago, while nobody listened
        boot_s = (state.now - instance.requested_at) * state.settings.unit_s
        state.fleet.speeds.boots.observe(instance.offer, boot_s)
        state.changes.speeds = state.fleet.speeds.snapshot()
    if is_too_dear(state, instance):
        _decline(state, instance)
        return
    instance.phase = InstancePhase.READY
    state.decide(instance.id, "ready", boot_s=state.now - instance.requested_at)
    for job_id in instance.job_ids:
        record = state.jobs[job_id]
        if record.phase is Phase.OFFLOADING and record.slots and state.fleet.ready(record.slots):
            start(state, record, Site.CLOUD, record.slots)
        elif record.phase is Phase.RUNNING and record.moving and state.fleet.ready(record.moving):
            set_off(state, record)


def _reprice(state: State, instance: InstanceRecord, rate: Money | None) -> bool:
    """Replace the instance's rate, from its launch on, by what the cloud reports; whether that is more."""
    if rate is None or rate == instance.rate:
        return False
    thought, instance.rate = instance.rate, rate
    if rate > thought:
        offer = instance.offer.name
        state.decide(instance.id, "dearer", offer=offer, rate=rate.micro_usd, thought=thought.micro_usd)
    return rate > thought


def is_too_dear(state: State, instance: InstanceRecord) -> bool:
    """Whether an instance costs more than `max_rate` a machine."""
    ceiling = state.settings.max_rate
    return ceiling is not None and instance.rate > ceiling * instance.offer.nodes


def _too_dear(state: State, instance: InstanceRecord) -> str:
    return f"it costs {instance.rate}/h, more than cloud.max_usd_per_hour, {state.settings.max_rate}"


def _decline(state: State, instance: InstanceRecord) -> None:
    """Release an instance that costs more than `max_rate` a machine; its jobs leave again for another."""
    _pause(state, instance, _too_dear(state, instance))
    _send_elsewhere(state, instance, f"{instance.id} is too dear")


def _send_elsewhere(state: State, instance: InstanceRecord, why: str) -> None:
    """Let the jobs of an instance leave for another; what runs on it is stopped first, with its grace."""
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        _forgo(state, record, instance, why)
        if _on(instance, record.slots) and record.phase in (Phase.STARTING, Phase.RUNNING):
            grace_s = state.grace_s(record.job)
            state.decide(record.id, "stopping", grace_s=grace_s, why=why)
            stop(state, record, StopReason.CAP, grace_s)
        elif _on(instance, record.slots) and record.phase is not Phase.STOPPING:
            _leave_again(state, record)


def instance_failed(state: State, event: InstanceFailed) -> None:
    """Close an instance whose launch failed: its offer is paused, and its jobs leave for the cloud again."""
    state.unconfirmed_instances.discard(event.instance_id)
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None:
        state.ignore(event, "no such machine, or it has ended")
        return
    _end(instance, event)
    _pause(state, instance, event.message)
    _close(state, instance, InstancePhase.FAILED)
    _send_elsewhere(state, instance, f"{instance.id} could not be rented")


def instance_gone(state: State, event: InstanceGone, *, known: bool = True) -> None:
    """Close an instance whose end the cloud confirms: its bill becomes final and its runs count as dead.

    `known=False`: after a restart, the cloud has no record of the instance. Offloading jobs leave again;
    other jobs on it are lost, preempted, or finish the stop that was under way.
    """
    state.unconfirmed_instances.discard(event.instance_id)
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None:
        state.ignore(event, "no such machine, or it has ended")
        return
    had_lost = bool(instance.lost)
    _end(instance, event)
    instance.preempted = instance.preempted or event.preempted
    how = "given back" if instance.phase is InstancePhase.TERMINATING else "ended by itself"
    if instance.unreachable_since is not None:
        how = "ended, for nobody got through to it"
    elif instance.unfit_since is not None:
        how = f"ended, for it {'cost too much' if is_too_dear(state, instance) else 'took no work'}"
    elif had_lost and instance.job_ids:
        how = "ended, for it had lost a machine"
    if known and instance.phase is InstancePhase.LAUNCHING:
        how = "ended before it came up"
        taken = "the cloud took it before it came up" if instance.preempted else "it never came up"
        _pause(state, instance, event.message or taken)
    if instance.preempted:
        how = "preempted by the cloud"
    _close(state, instance, InstancePhase.GONE)
    billed_s = max(0.0, event.ended_at - event.launched_at)
    state.decide(instance.id, "gone", how=how, billed_s=billed_s, micro_usd=instance.micro_usd)
    message = f"{instance.id} was {how}"
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        _forgo(state, record, instance, message)
        if _on(instance, record.slots):
            _machine_took(state, record, message, preempted=instance.preempted)


def machines_lost(state: State, event: MachinesLost) -> None:
    """Note which machines of an instance have ended while others of it run.

    If an elastic gang can go on on the others the instance stays, no job joins it, and what ran on the lost
    ones is stopped, with its grace. Else it is ended, and its jobs are lost with it (`instance_gone`).
    """
    instance, lost = state.fleet.instances.get(event.instance_id), dict(event.lost)
    if instance is None or lost.keys() <= instance.lost.keys():
        state.ignore(event, "no such machine, or it is known")
        return
    instance.lost = lost
    state.touch_instance(instance)
    if instance.phase not in OPEN_PHASES:
        return
    records = [state.jobs[job_id] for job_id in instance.job_ids]
    for record in records:
        _forgo(state, record, instance, f"{instance.id} lost a machine")
    fewer = [
        (record.id, left, len(record.job.tasks))
        for record in records
        if (left := _tasks_left(state, record, instance, preempted=event.preempted))
    ]
    state.decide(instance.id, "machines-lost", lost=len(lost), of=instance.offer.nodes, fewer=fewer)
    if not fewer:
        instance.phase, instance.preempted = InstancePhase.TERMINATING, event.preempted
        state.do(TerminateInstance(instance.id))
        return
    for record in [record for record in records if not _spared(record, instance)]:
        if record.phase is Phase.OFFLOADING:
            _leave_again(state, record)
        elif record.phase is not Phase.STOPPING:
            grace_s, why = state.grace_s(record.job), f"{instance.id} lost a machine that it ran on"
            state.decide(record.id, "stopping", grace_s=grace_s, why=why)
            stop(state, record, StopReason.PREEMPTED if event.preempted else StopReason.LOST, grace_s)
            record.message = why


def _tasks_left(state: State, record: JobRecord, instance: InstanceRecord, *, preempted: bool) -> int:
    """How many tasks of an elastic gang go on on the machines that are left of its instance; 0 if none do."""
    if not (record.job.least_tasks and record.alive and (record.stop_why or StopReason.LOST) in TAKEN):
        return 0
    if _spared(record, instance):
        return len(record.slots)
    may = record.losses + (not preempted) <= state.settings.max_losses
    return len(slots_left(record.job, instance)) if may else 0


def _spared(record: JobRecord, instance: InstanceRecord) -> bool:
    """Whether a job has no slot on a lost machine of an instance."""
    return not any(slot.where == instance.id and slot.node in instance.lost for slot in record.slots)


def instance_unreachable(state: State, event: InstanceUnreachable) -> None:
    """Mark an instance as unreachable; its runs count as alive.

    It has `unreachable_s` seconds to answer before it is ended (`fence`); the start of that period is stored,
    so it survives a restart. Moves to the instance, and moves away from it that have not begun, are dropped.
    """
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None or instance.phase not in OPEN_PHASES:
        state.ignore(event, "no such machine, or it is given back")
        return
    if instance.unreachable_since is not None:
        return
    instance.unreachable_since = state.now
    state.fleet.troubled.add(instance.id)
    state.touch_instance(instance)
    why = {"why": event.why} if event.why else {"unsure": True} if event.unsure else {}
    state.decide(instance.id, "unreachable", grace_s=state.settings.unreachable_s, **why)
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        _forgo(state, record, instance, f"nobody gets through to {instance.id}")


def instance_reachable(state: State, event: InstanceReachable) -> None:
    """Clear the unreachable mark of an instance that answers; one that is being ended stays so."""
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None or instance.phase not in OPEN_PHASES:
        state.ignore(event, "no such machine, or it is given back")
        return
    if instance.unreachable_since is None:
        return
    state.decide(instance.id, "reachable", after_s=state.now - instance.unreachable_since)
    instance.unreachable_since = None
    if instance.unfit_since is None:
        state.fleet.troubled.discard(instance.id)
    state.touch_instance(instance)


def instance_stalled(state: State, event: InstanceStalled) -> None:
    """Record with the jobs that wait for a launch what holds it up; whatever ends their wait clears it.

    No decision: each try of a launch that fails alike would make one.
    """
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None or instance.phase is not InstancePhase.LAUNCHING:
        state.ignore(event, "no such machine, or it is not being launched")
        return
    why = " ".join(event.why.split())[:WORDS]
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        if record.phase is Phase.OFFLOADING and record.stall != why:
            record.stall = why
            state.touch(record)


def instance_unfit(state: State, event: InstanceUnfit) -> None:
    """Mark an instance as unfit: no job joins it, and its offer is paused, as the next instance may fail too.

    The cloud adapter reports runs that have not begun there as not started; runs that have begun go on.
    """
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None or instance.phase not in OPEN_PHASES:
        state.ignore(event, "no such machine, or it is given back")
        return
    if instance.unfit_since is not None:
        return
    instance.unfit_since = state.now
    state.fleet.troubled.add(instance.id)
    state.touch_instance(instance)
    pause_s = state.fleet.pause(instance.offer.name, state.now, state.settings.offer_pause_s, wasted=True)
    state.decide(instance.id, "unfit", why=event.why, offer=instance.offer.name, pause_s=pause_s)
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        if _on(instance, record.moving):
            _forgo(state, record, instance, f"{instance.id} takes no work")


def fence_at(state: State) -> float:
    """Time at which the next unreachable or idle unfit instance is to be ended; infinity if there is none."""
    fleet = state.fleet
    if not fleet.troubled:
        return inf
    troubled = [fleet.instances[name] for name in fleet.troubled]
    since = (_useless_since(state, instance) for instance in troubled if instance.phase in OPEN_PHASES)
    return min(since, default=inf) + state.settings.unreachable_s


def _useless_since(state: State, instance: InstanceRecord) -> float:
    """Since when an instance is unreachable, or unfit without a started run; infinity if neither."""
    if instance.unreachable_since is not None:
        return instance.unreachable_since
    busy = any(state.jobs[job_id].started_at is not None for job_id in instance.job_ids)
    return inf if instance.unfit_since is None or busy else instance.unfit_since


def fence(state: State) -> None:
    """Terminate instances that were unreachable, or unfit and idle, for `unreachable_s` seconds.

    Their jobs start anew only after the cloud has confirmed the end (`instance_gone`).
    """
    if not state.fleet.troubled or fence_at(state) > state.now:
        return
    for instance in state.fleet.instances.values():
        since = _useless_since(state, instance)
        if instance.phase in OPEN_PHASES and since + state.settings.unreachable_s <= state.now:
            unfit = {"unfit": True} if instance.unreachable_since is None else {}
            instance.phase = InstancePhase.TERMINATING
            state.decide(instance.id, "fenced", after_s=state.now - since, **unfit)
            state.touch_instance(instance)
            state.do(TerminateInstance(instance.id))


def confirm_instances(state: State, known: frozenset[str]) -> None:
    """After a restart: close stored instances that the cloud's first report does not contain."""
    for instance_id in sorted(state.unconfirmed_instances - known):
        instance = state.fleet.instances[instance_id]
        launched_at = state.now if instance.launched_at is None else instance.launched_at
        instance_gone(state, InstanceGone(instance_id, launched_at, state.now), known=False)
    state.unconfirmed_instances.clear()


def forgo_unknown(state: State, known: frozenset[str]) -> None:
    """After a restart: drop planned moves that involve instances unknown to the cloud."""
    for instance_id in sorted(state.unconfirmed_instances - known):
        instance = state.fleet.instances[instance_id]
        for record in [state.jobs[job_id] for job_id in instance.job_ids]:
            _forgo(state, record, instance, f"the cloud has no trace of {instance_id}")


def _forgo(state: State, record: JobRecord, instance: InstanceRecord, why: str) -> None:
    """Drop a planned move to this instance, or of a job on it that has not been stopped yet."""
    if _on(instance, record.moving) or (record.moving and record.phase is Phase.RUNNING):
        stay(state, record)
        state.decide(record.id, "unmoved", why=why)


def _on(instance: InstanceRecord, slots: Iterable[Slot]) -> bool:
    return instance.id in {slot.where for slot in slots}


def _machine_took(state: State, record: JobRecord, message: str, *, preempted: bool) -> None:
    if record.phase is Phase.OFFLOADING:
        _leave_again(state, record)
    elif any(slot.where in state.fleet.instances for slot in record.slots):
        # One instance of a gang: the tasks on the others must end before a new attempt may start.
        record.message = message
        if record.phase is not Phase.STOPPING:
            stop(state, record, StopReason.PREEMPTED if preempted else StopReason.LOST, 0.0)
    elif record.alive:
        gone(state, record, message, preempted=preempted)


def _leave_again(state: State, record: JobRecord) -> None:
    """Release all instances of a job after a lost launch; if it is offloading, it leaves again.

    One that left before its wait was over, as for room that cost nothing, has the rest of it.
    """
    release(state, record)
    if record.phase is Phase.OFFLOADING and record.wait is not None and state.now < record.deadline < inf:
        state.decide(record.id, "waits-on", left_s=record.deadline - state.now)
        requeue(state, record)
    elif record.phase is Phase.OFFLOADING:
        to(state, record, Phase.QUEUED)
        leave(state, record, LeaveReason.AGAIN)
    else:
        record.slots = ()


def _pause(state: State, instance: InstanceRecord, message: str) -> None:
    """Pause the offer of a failed launch."""
    offer, cost = instance.offer.name, instance.cost(state.now)
    billed = {"micro_usd": cost.micro_usd} if cost.micro_usd else {}
    pause_s = state.fleet.pause(offer, state.now, state.settings.offer_pause_s, wasted=bool(billed))
    state.decide(instance.id, "launch-failed", message=message, offer=offer, pause_s=pause_s, **billed)


def _end(instance: InstanceRecord, event: InstanceFailed | InstanceGone) -> None:
    """Note from when until when an instance, and of several machines each, is billed."""
    instance.launched_at, instance.ended_at = event.launched_at, event.ended_at
    instance.lost |= dict(event.lost)


def _close(state: State, instance: InstanceRecord, phase: InstancePhase) -> None:
    """Enter an instance's end phase and divide its final bill among its jobs and the caps' ledgers."""
    instance.phase = phase
    state.touch_instance(instance)
    settle(state, instance)
    for job_id, share in state.fleet.settle(instance).items():
        record = state.jobs[job_id]
        record.cloud_micro_usd += share
        record.open_bills -= 1
        state.touch(record)
        if record.phase.is_end:
            state.retired.append(job_id)
