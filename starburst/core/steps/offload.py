"""Jobs on their way out are gathered for a moment, then given machines together."""

from __future__ import annotations

from math import inf

from starburst.core.model.actions import LaunchInstance
from starburst.core.model.estimates import unsaved_s
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.fleet import InstanceRecord, Leaver, Packed
from starburst.core.state import State
from starburst.core.steps.admission import confine, keep
from starburst.core.steps.budget_enforcement import afford
from starburst.core.steps.interference import slowed_by
from starburst.core.steps.run_lifecycle import place, start
from starburst.core.steps.start_refusals import is_shut
from starburst.domain.job import Job, Phase, Site


def pack_at(state: State) -> float:
    """When those who leave are packed; infinity while nobody does."""
    first = min(state.departing.values(), default=inf)
    return first + state.settings.pack_window_s


def recall(state: State) -> None:
    """Who only leaves because nothing was free stays if there is room before a machine was asked for."""
    for job_id in list(state.departing) if state.grew and not is_shut(state) else ():
        record = state.jobs[job_id]
        wants_room = record.leaving is not None and record.leaving.wants_room
        slots = state.capacity.place(record.job) if wants_room else None
        if slots is not None:
            place(state, record, slots, behind="")


def pack(state: State) -> None:
    """Give everybody who leaves a machine, once the first of them has waited long enough for company."""
    if pack_at(state) > state.now:
        return
    waiting = [state.jobs[job_id] for job_id in state.departing]
    state.departing.clear()
    for record in waiting:
        if record.confined:  # since it began to leave
            confine(state, record)
    leavers = afford(state, [record for record in waiting if not record.confined])
    if not leavers:
        return
    packed = state.fleet.pack(
        [leaver(state, record.job, unsaved_s(record, state.runtime_s(record.job))) for record in leavers],
        busy_until(state) if state.fleet.shares else {},
        state.now,
    )
    told: set[str] = set()
    for record in leavers:
        if record.id in packed.lacking:
            keep(state, record, packed.lacking[record.id])
        else:
            _offload(state, record, packed, told)


def leaver(state: State, job: Job, left_s: float) -> Leaver:
    """A job on its way out that has so much to run, by estimates."""
    return Leaver(job, state.now + left_s, slowed_by(state, job))


def _offload(state: State, record: JobRecord, packed: Packed, told: set[str]) -> None:
    """The job has its slots; machines that it is the first of are asked for."""
    assert record.leaving is not None
    record.slots = packed.slots[record.id]
    machines = [state.fleet.instances[name] for name in dict.fromkeys(slot.where for slot in record.slots)]
    record.open_bills += packed.bills[record.id]
    state.touch(record)
    everyone = dict.fromkeys(job_id for machine in machines for job_id in machine.job_ids)
    state.decide(
        record.id,
        "offloaded",
        why=record.leaving.value,
        need=str(record.job.resources),
        waited_s=state.now - record.queued_at,
        short_job_s=state.settings.short_job_s,
        queue_limit=state.settings.queue_limit,
        offers=", ".join(machine.offer.name for machine in machines),
        rate=sum(machine.rate.micro_usd for machine in machines),
        joins=", ".join(machine.id for machine in machines) if record.id in packed.joined else "",
        sharers=", ".join(job_id for job_id in everyone if job_id != record.id),
    )
    record.leaving = None
    for machine in machines:
        state.touch_instance(machine)
        if machine.id in packed.launched and machine.id not in told:
            told.add(machine.id)
            launch(state, machine)
    if state.fleet.ready(record.slots):
        start(state, record, Site.CLOUD, record.slots)


def launch(state: State, machine: InstanceRecord) -> None:
    """Ask for a machine that jobs hold already."""
    state.touch_instance(machine)
    numbers = {
        "offer": machine.offer.name,
        "rate": machine.rate.micro_usd,
        "jobs": ", ".join(machine.job_ids),
    }
    state.decide(machine.id, "launched", **numbers)
    state.do(LaunchInstance(machine.id, machine.offer.name))


def busy_until(state: State) -> dict[str, float]:
    """Until when each machine will be needed by the jobs it is for, by estimates."""
    until: dict[str, float] = {}
    for machine in state.fleet.instances.values():
        for record in (state.jobs[job_id] for job_id in machine.job_ids):
            if _needs(record, machine):
                until[machine.id] = max(until.get(machine.id, 0.0), state.expected_end(record))
    return until


def _needs(record: JobRecord, machine: InstanceRecord) -> bool:
    if record.moving:
        return machine.id in {slot.where for slot in record.moving}
    return record.phase is not Phase.STOPPING
