"""What happens to rented machines, and what that does to the jobs on them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from starburst.core.model.actions import Slot, TerminateInstance
from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnfit,
    InstanceUnreachable,
)
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import LeaveReason, StopReason
from starburst.core.parts.fleet import OPEN_PHASES, InstanceRecord
from starburst.core.state import State
from starburst.core.steps.admission import leave
from starburst.core.steps.budget import settle
from starburst.core.steps.run_lifecycle import gone, release, set_off, start, stay, stop
from starburst.core.steps.transitions import to
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import Phase, Site
from starburst.domain.money import Money


def instance_ready(state: State, event: InstanceReady) -> None:
    """A machine is up: the jobs that have all their machines now start."""
    state.unconfirmed_instances.discard(event.instance_id)
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None:
        return
    instance.launched_at = event.launched_at
    _reprice(state, instance, event.rate)
    state.touch_instance(instance)
    if instance.phase is not InstancePhase.LAUNCHING:
        return
    if _is_too_dear(state, instance):
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


def _reprice(state: State, instance: InstanceRecord, rate: Money | None) -> None:
    """What the cloud says that a machine costs is what is counted, from its launch on."""
    if rate is None or rate == instance.rate:
        return
    thought, instance.rate = instance.rate, rate
    if rate > thought:
        offer = instance.offer.name
        state.decide(instance.id, "dearer", offer=offer, rate=rate.micro_usd, thought=thought.micro_usd)


def _is_too_dear(state: State, instance: InstanceRecord) -> bool:
    ceiling = state.settings.max_rate
    return ceiling is not None and instance.rate > ceiling


def _decline(state: State, instance: InstanceRecord) -> None:
    """A machine costs more than one may: it is given back before anything runs on it."""
    message = f"it costs {instance.rate}/h, more than cloud.max_usd_per_hour, {state.settings.max_rate}"
    _pause(state, instance, message)
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        _forgo(state, record, instance, f"{instance.id} is too dear")
        if _on(instance, record.slots):
            _leave_again(state, record)


def instance_failed(state: State, event: InstanceFailed) -> None:
    """A launch came to nothing: its offer is left alone for a while, its jobs look elsewhere."""
    state.unconfirmed_instances.discard(event.instance_id)
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None:
        return
    instance.launched_at, instance.ended_at = event.launched_at, event.ended_at
    _pause(state, instance, event.message)
    _close(state, instance, InstancePhase.FAILED)
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        _forgo(state, record, instance, f"{instance.id} could not be rented")
        if _on(instance, record.slots):
            _leave_again(state, record)


def instance_gone(state: State, event: InstanceGone, *, known: bool = True) -> None:
    """The cloud confirms that a machine has ended, or never knew it: its bill is final, its runs are dead."""
    state.unconfirmed_instances.discard(event.instance_id)
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None:
        return
    instance.launched_at, instance.ended_at = event.launched_at, event.ended_at
    instance.preempted = event.preempted
    how = "given back" if instance.phase is InstancePhase.TERMINATING else "ended by itself"
    if instance.unreachable_since is not None:
        how = "ended, for nobody got through to it"
    elif instance.unfit_since is not None:
        how = "ended, for it took no work"
    if event.preempted:
        how = "preempted by the cloud"
    elif known and instance.phase is InstancePhase.LAUNCHING:
        how = "ended before it came up"
        _pause(state, instance, event.message or "it never came up")
    _close(state, instance, InstancePhase.GONE)
    billed_s = max(0.0, event.ended_at - event.launched_at)
    state.decide(instance.id, "gone", how=how, billed_s=billed_s, micro_usd=instance.micro_usd)
    message = f"{instance.id} was {how}"
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        _forgo(state, record, instance, message)
        if _on(instance, record.slots):
            _machine_took(state, record, message, preempted=event.preempted)


def instance_unreachable(state: State, event: InstanceUnreachable) -> None:
    """Not dead for that: it gets a grace, which survives a restart, to be heard of again."""
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None or instance.phase not in OPEN_PHASES or instance.unreachable_since is not None:
        return
    instance.unreachable_since = state.now
    state.fleet.troubled.add(instance.id)
    state.touch_instance(instance)
    why = {"why": event.why} if event.why else {}
    state.decide(instance.id, "unreachable", grace_s=state.settings.unreachable_s, **why)
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        _forgo(state, record, instance, f"nobody gets through to {instance.id}")


def instance_reachable(state: State, event: InstanceReachable) -> None:
    """It answers again; if it was ended meanwhile, that stands."""
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None or instance.phase not in OPEN_PHASES or instance.unreachable_since is None:
        return
    state.decide(instance.id, "reachable", after_s=state.now - instance.unreachable_since)
    instance.unreachable_since = None
    if instance.unfit_since is None:
        state.fleet.troubled.discard(instance.id)
    state.touch_instance(instance)


def instance_unfit(state: State, event: InstanceUnfit) -> None:
    """Nothing new goes there, and its offer is left alone: the next machine of it may be no better.

    Its site takes back what has not begun there; what runs goes on to its end.
    """
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None or instance.phase not in OPEN_PHASES or instance.unfit_since is not None:
        return
    instance.unfit_since = state.now
    state.fleet.troubled.add(instance.id)
    state.touch_instance(instance)
    offer, pause_s = instance.offer.name, state.settings.offer_pause_s
    state.fleet.paused[offer] = state.now + pause_s
    state.decide(instance.id, "unfit", why=event.why, offer=offer, pause_s=pause_s)
    for record in [state.jobs[job_id] for job_id in instance.job_ids]:
        if _on(instance, record.moving):
            _forgo(state, record, instance, f"{instance.id} takes no work")


def fence_at(state: State) -> float:
    """When the next grace of a machine that is not heard of, or of no use, is over; infinity if none is."""
    fleet = state.fleet
    troubled = [fleet.instances[name] for name in fleet.troubled] if fleet.troubled else ()
    since = (_useless_since(state, instance) for instance in troubled if instance.phase in OPEN_PHASES)
    return min(since, default=inf) + state.settings.unreachable_s


def _useless_since(state: State, instance: InstanceRecord) -> float:
    """Since when nobody gets through to a machine, or it does nothing though jobs are for it; infinity."""
    if instance.unreachable_since is not None:
        return instance.unreachable_since
    busy = any(state.jobs[job_id].started_at is not None for job_id in instance.job_ids)
    return inf if instance.unfit_since is None or busy else instance.unfit_since


def fence(state: State) -> None:
    """End machines that were of no use for too long. Their jobs go on only once they are known dead."""
    if fence_at(state) > state.now:
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
    """After a restart: machines of the store that the cloud has never heard of do not exist."""
    for instance_id in sorted(state.unconfirmed_instances - known):
        instance = state.fleet.instances[instance_id]
        launched_at = state.now if instance.launched_at is None else instance.launched_at
        instance_gone(state, InstanceGone(instance_id, launched_at, state.now), known=False)
    state.unconfirmed_instances.clear()


def forgo_unknown(state: State, known: frozenset[str]) -> None:
    """Nobody moves to machines of the store that the cloud has never heard of."""
    for instance_id in sorted(state.unconfirmed_instances - known):
        instance = state.fleet.instances[instance_id]
        for record in [state.jobs[job_id] for job_id in instance.job_ids]:
            _forgo(state, record, instance, f"the cloud has no trace of {instance_id}")


def _forgo(state: State, record: JobRecord, instance: InstanceRecord, why: str) -> None:
    """A job does not move whose target is lost, or its present machine before it was told to stop."""
    if _on(instance, record.moving) or (record.moving and record.phase is Phase.RUNNING):
        stay(state, record)
        state.decide(record.id, "unmoved", why=why)


def _on(instance: InstanceRecord, slots: Iterable[Slot]) -> bool:
    return instance.id in {slot.where for slot in slots}


def _machine_took(state: State, record: JobRecord, message: str, *, preempted: bool) -> None:
    if record.phase is Phase.OFFLOADING:
        _leave_again(state, record)
    elif any(slot.where in state.fleet.instances for slot in record.slots):
        # One machine of a gang: the others must end before a new attempt may start.
        record.message = message
        if record.phase is not Phase.STOPPING:
            stop(state, record, StopReason.PREEMPTED if preempted else StopReason.LOST, 0.0)
    elif record.alive:
        gone(state, record, message, preempted=preempted)


def _leave_again(state: State, record: JobRecord) -> None:
    """A machine did not come up: give back the others of the job, and ask for new ones."""
    release(state, record)
    if record.phase is Phase.OFFLOADING:
        to(state, record, Phase.QUEUED)
        leave(state, record, LeaveReason.AGAIN)
    else:
        record.slots = ()


def _pause(state: State, instance: InstanceRecord, message: str) -> None:
    """Leave the offer of a launch that came to nothing alone for a while."""
    pause_s = state.settings.offer_pause_s
    state.fleet.paused[instance.offer.name] = state.now + pause_s
    cost = instance.cost(state.now)
    billed = {"micro_usd": cost.micro_usd} if cost.micro_usd else {}
    offer = instance.offer.name
    state.decide(instance.id, "launch-failed", message=message, offer=offer, pause_s=pause_s, **billed)


def _close(state: State, instance: InstanceRecord, phase: InstancePhase) -> None:
    """The books of a machine are closed: its bill goes to the jobs it was for."""
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
