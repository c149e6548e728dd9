"""Offload: jobs that leave within one pack window are packed onto instances together.

A new instance is first a record that its jobs hold, with a `LaunchInstance` action under the same id (the
launch intent). Both are stored with the step before the cloud is asked, so a request repeated after a crash
refers to the same instance. The jobs start once all their instances are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf, isinf

from starburst.core.model.actions import LaunchInstance, PrepareRun, Slot, places
from starburst.core.model.estimates import unsaved_s
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import LeaveReason
from starburst.core.parts.fleet import Packed, extend
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.parts.join_search import JoinSearch, Leaver
from starburst.core.state import State
from starburst.core.steps.admission import confine, keep, leave
from starburst.core.steps.budget_enforcement import afford
from starburst.core.steps.interference import slowed_by
from starburst.core.steps.run_lifecycle import place, start
from starburst.core.steps.start_refusals import is_shut
from starburst.domain.job import CloudChoice, Job, Phase, Site

#: Part of its cost by itself that a queued job may add to a bill: it may start on the cluster yet.
EARLY = 0.5
#: Largest number of jobs that one step packs: nothing else is decided meanwhile.
PACKED_PER_STEP = 5_000


def pack_at(state: State) -> float:
    """End of the present pack window, or now if it is past; infinity while no job is leaving."""
    if not state.departing:
        return inf
    return max(state.now, min(state.departing.values()) + state.settings.pack_window_s)


def recall(state: State) -> None:
    """Cancel pending offloads for which cluster capacity has appeared before an instance was requested.

    Only jobs that leave for lack of capacity (expired, hopeless, queue full) are recalled.
    """
    if is_shut(state):
        return
    for job_id in list(state.departing):
        record = state.jobs[job_id]
        may_stay = record.job.cloud is not CloudChoice.ONLY
        wants_room = may_stay and record.leaving is not None and record.leaving.wants_room
        slots = state.capacity.place(record.job) if wants_room and not record.awaits_volumes else None
        if slots is not None:
            place(state, record, slots, behind="")


def pack(state: State) -> None:
    """At the end of the pack window, assign instances to the leaving jobs, PACKED_PER_STEP of them at most.

    The others follow in the next step of the same instant, and may join what these rented.
    Jobs that their cluster or a cap keeps from leaving, or that no offer holds, go back to the queue. The
    other jobs join instances that are needed for longer anyway, or whose bill grows by less than what they
    cost alone, or the packer chooses what to rent for them.
    """
    if pack_at(state) > state.now:
        return
    waiting = [state.jobs[job_id] for job_id in islice(state.departing, PACKED_PER_STEP)]
    for record in waiting:
        del state.departing[record.id]
    for record in waiting:
        if record.confined:  # set after it began to leave
            confine(state, record)
    leavers = afford(state, [record for record in waiting if not record.confined])
    if not leavers:
        return
    packed = _packed(state, leavers)
    launched: set[str] = set()
    for record in leavers:
        if record.id in packed.lacking:
            keep(state, record, packed.lacking[record.id])
        else:
            _offload(state, record, packed, launched)


def _packed(state: State, leavers: Sequence[JobRecord]) -> Packed:
    if not state.fleet.shares:
        return state.fleet.rent_apart([record.job for record in leavers], state.now)
    return state.fleet.pack(
        [leaver(state, record.job, unsaved_s(record, state.runtime_s(record.job))) for record in leavers],
        busy_until(state),
        state.now,
    )


def join_spare(state: State) -> None:
    """Offload queued jobs onto rented machines where that adds next to nothing to the bill, in their order.

    Where other jobs need the machine for longer anyway it adds nothing, and any delay costs more. Else it has
    to be less than `EARLY` of what the job costs alone.
    """
    unseen, busy = state.fleet.spare.take(), busy_until(state)
    changed = _roomy(state, unseen.machines, busy)
    roomy = _roomy(state, state.fleet.instances, busy) if unseen.jobs else changed
    fresh = {record.id for record in unseen.jobs}
    # What joins takes room, and none is given back meanwhile.
    new = state.fleet.search(busy, roomy)
    old = new.among(changed)
    for record in sorted(state.queue if changed else unseen.jobs, key=lambda job: (job.order_key, job.seq)):
        if record.id in state.queue and _may_join(record):
            _join(state, record, new if record.id in fresh else old, busy)
    state.fleet.spare.take()  # what joined leaves less room


def _roomy(state: State, names: Iterable[str], busy: Mapping[str, float]) -> list[InstanceRecord]:
    """Those of these instances that others need from now on, and that have resources to spare."""
    needed = (state.fleet.instances[name] for name in names if busy.get(name, 0.0) > state.now)
    return [m for m in needed if m.is_sound and (m.free.gpus > 0 or m.free.cpu_milli > 0)]


def _may_join(record: JobRecord) -> bool:
    """Whether the job waits as long as the policy says, and is free to leave for the cloud."""
    free_to_go = record.job.cloud is CloudChoice.AUTO and record.obstacle is None
    return free_to_go and record.job.max_wait_s is None and not isinf(record.deadline)


def _join(state: State, record: JobRecord, search: JoinSearch, busy: dict[str, float]) -> None:
    """Offload the job onto one of the machines, if its run fits there and adds little enough to the bill."""
    left_s = unsaved_s(record, state.runtime_s(record.job))
    until = state.now + left_s
    alone = state.fleet.bid(record.job, left_s, state.now)
    bid = replace(alone, most=EARLY * alone.most)
    if not search.slots(Leaver(record.job, until), bid):
        return
    slots = search.slots(Leaver(record.job, until, slowed_by(state, record.job)), bid)
    if not slots:
        return
    leave(state, record, LeaveReason.SPARE)
    if record.phase is not Phase.OFFLOADING:  # no offer, or a cap, or its cluster keeps it
        return
    state.departing.pop(record.id)
    bills = {record.id: state.fleet.hold(record.id, slots, state.now)}
    joined = {record.id: extend(busy, slots, until)}
    _offload(state, record, Packed({record.id: slots}, joined, bills=bills), set())


def leaver(state: State, job: Job, left_s: float) -> Leaver:
    """The packing request of a leaving job with `left_s` estimated seconds of run time."""
    return Leaver(job, state.now + left_s, slowed_by(state, job))


def _offload(state: State, record: JobRecord, packed: Packed, launched: set[str]) -> None:
    """Record the job's slots, launch new instances once each (`launched`), and start it if all are ready."""
    assert record.leaving is not None
    record.slots = packed.slots[record.id]
    machines = [state.fleet.instances[name] for name in places(record.slots)]
    record.open_bills += packed.bills[record.id]
    state.touch(record)
    others = [job_id for machine in machines for job_id in machine.job_ids if job_id != record.id]
    is_dear = record.leaving is LeaveReason.DEAR
    state.decide(
        record.id,
        "offloaded",
        why=record.leaving.value,
        need=record.need,
        waited_s=state.now - record.queued_at,
        short_job_s=state.settings.short_job_s,
        queue_limit=state.settings.queue_limit,
        offers=", ".join([machine.offer.title for machine in machines]),
        rate=sum([machine.rate.micro_usd for machine in machines]),
        joins=", ".join([machine.id for machine in machines]) if record.id in packed.joined else "",
        **_image(state, record.job, machines),
        **_alone(state, record),
        **_longer(machines, packed.joined.get(record.id, 0.0)),
        sharers=", ".join(dict.fromkeys(others)),
        **({"gang": packed.whys[record.id]} if record.id in packed.whys else {}),
        **({"predicted_s": record.wait.predicted_s} if record.wait and is_dear else {}),
    )
    record.leaving = None
    for machine in machines:
        state.touch_instance(machine)
        if machine.id in packed.launched and machine.id not in launched:
            launched.add(machine.id)
            launch(state, machine)
    if state.fleet.ready(record.slots):
        start(state, record, Site.CLOUD, record.slots)
    else:
        prepare(state, record, record.slots)


def launch(state: State, machine: InstanceRecord) -> None:
    """Request the launch of an instance whose slots are already held by jobs."""
    state.touch_instance(machine)
    numbers = {
        "offer": machine.offer.title,
        "rate": machine.rate.micro_usd,
        "jobs": ", ".join(machine.job_ids),
    }
    state.decide(machine.id, "launched", **numbers)
    state.do(LaunchInstance(machine.id, machine.offer.name, machine.offer.nodes))


def prepare(state: State, record: JobRecord, slots: tuple[Slot, ...]) -> None:
    """Have a job's image pulled on instances that come up, on which its next attempt will start."""
    if record.job.image:
        state.do(PrepareRun(record.id, record.attempt + 1, slots))


def _alone(state: State, record: JobRecord) -> dict[str, object]:
    """For the log, of a job that joins spare room: its cost by itself, micro-dollars, and its wait left."""
    if record.leaving is not LeaveReason.SPARE:
        return {}
    offers = state.fleet.price(record.job, state.fleet.available(state.now))
    assert not isinstance(offers, str)
    runtime_s = state.runtime_s(record.job)
    cost = sum(state.fleet.rate(offer).for_seconds(runtime_s).micro_usd for offer in offers)
    return {"alone": cost, "left_s": max(0.0, record.deadline - state.now)}


def _longer(machines: Sequence[InstanceRecord], longer_s: float) -> dict[str, object]:
    """For the log: seconds for which only this job needs the machine that it joins, and their cost."""
    cost = sum(machine.rate.for_seconds(longer_s).micro_usd for machine in machines)
    return {"longer_s": longer_s, "longer": cost} if longer_s else {}


def _image(state: State, job: Job, machines: Sequence[InstanceRecord]) -> dict[str, object]:
    """For the log: whether the job's image is on the machines, and seconds of its pull; {} if unknown."""
    if not job.image or any(machine.images is None for machine in machines):
        return {}
    return {"pull_s": max(state.fleet.pull_s(job, machine) for machine in machines)}


def busy_until(state: State) -> dict[str, float]:
    """Expected end of the last job on each instance, by instance id; jobs that leave it are not counted."""
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
