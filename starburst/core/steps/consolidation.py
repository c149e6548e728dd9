"""Consolidation: running cloud jobs move together if that saves more than it costs (Eva, sections 4.2-4.5).

Every `pack_period_s` the instances are considered whose jobs may all move. Jobs that fit on other instances,
which are needed for longer anyway, join those, by the same rule as offloading jobs (core/parts/fleet.py). The
packer then plans for the remaining instances. The plan is split into groups of moves that share instances,
and a group is carried out if, by estimates, saves > costs:

    saves = Σ rate · time until the last job ends, over the group's instances as used now, minus the same
            sum after the moves
    costs = Σ over tasks (move_s + pull_s) · (old rate + new rate) + Σ over launches boot_s · rate

pull_s is 0 where the job's image is on the target, or is pulled while that comes up (core/steps/offload.py).

The costs are M of Eva's equation 1: both instances are paid for while a task moves. Eva uses M only to choose
between two plans, weighted by the expected lifetime of a plan, and never compares it with the remaining run
time of the jobs. The test here therefore applies to every packer and deducts nothing twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from starburst.core.model.actions import Slot
from starburst.core.model.decisions import where
from starburst.core.model.estimates import cloud_run
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.fleet import Fleet
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.state import State
from starburst.core.steps.budget import affords
from starburst.core.steps.offload import busy_until, launch, leaver, prepare
from starburst.core.steps.run_lifecycle import hold, set_off
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Job, Phase, Task
from starburst.domain.resources import Resources, total
from starburst.policy.packing.plan import Plan, Rented, TaskKey

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Move:
    """A job and its slots after the move; a new instance is named by its place in the plan ("launch-0")."""

    record: JobRecord
    slots: tuple[Slot, ...]

    @property
    def places(self) -> set[str]:
        """Instances of the job before and after the move."""
        return {slot.where for slot in (*self.record.slots, *self.slots)}


@dataclass(frozen=True, slots=True)
class Worth:
    """Saving and cost of a group of moves, micro-dollars; `rate`: reduction per hour after the moves."""

    saves: float
    costs: float
    rate: int


def consolidate_at(state: State) -> float:
    """Time of the next consolidation; infinity while no instance has only movable jobs."""
    if not state.fleet.shares or not state.settings.pack_period_s:
        return inf
    first = inf
    for machine in state.fleet.instances.values():
        opens = _open_from(state, machine)
        if opens <= state.next_round:  # no instance can make the round begin sooner
            return state.next_round
        first = min(first, opens)
    return first


def consolidate(state: State) -> None:
    """Run one consolidation if it is due: first joins, then the packer's plan, each group only if it pays."""
    if not state.fleet.shares or state.now < state.next_round or consolidate_at(state) > state.now:
        return
    state.next_round = state.now + state.settings.pack_period_s
    _carry_out(state, _joins(state, _offered(state)), {})
    machines = _offered(state)
    jobs = {job_id: state.jobs[job_id] for machine in machines.values() for job_id in machine.job_ids}
    if not jobs:
        return
    held = _tasks_held(jobs.values())
    # A packer knows instances of one machine; what is on several can only leave them.
    kept = {name: machine for name, machine in machines.items() if machine.offer.nodes == 1}
    rented = [Rented(name, machine.offer, tuple(held[name])) for name, machine in kept.items()]
    tasks = [task for record in jobs.values() for task in _tasks(state, record)]
    plan = state.fleet.reconsider(tasks, rented, state.now)
    new = {f"launch-{n}": launching.offer for n, launching in enumerate(plan.launches)}
    _carry_out(state, _moves(plan, jobs.values()), new)


def _movable_from(state: State, record: JobRecord) -> float:
    """Earliest time at which a job may move; infinity while it may not.

    It must run, checkpoint, be confirmed by its site, and neither move nor be due for return already.
    """
    unknown = (record.id, record.attempt) in state.unconfirmed_runs
    free = record.phase is Phase.RUNNING and not record.moving and record.id not in state.homesick
    if not (free and record.job.checkpoint) or unknown or record.started_at is None:
        return inf
    return record.started_at + state.settings.move_min_run_s


def _open_from(state: State, machine: InstanceRecord) -> float:
    """Earliest time at which all jobs of an instance may move; infinity while one may not.

    Of several machines only jobs of one task may, which are there when the gang has gone that needed them.
    """
    up = machine.phase is InstancePhase.READY and machine.is_sound
    if not up or machine.id in state.unconfirmed_instances or not machine.room_is_known:
        return inf
    jobs = [state.jobs[job_id] for job_id in machine.job_ids]
    if machine.offer.nodes > 1 and any(len(record.slots) > 1 for record in jobs):
        return inf
    return max((_movable_from(state, record) for record in jobs), default=inf)


def _offered(state: State) -> dict[str, InstanceRecord]:
    """Instances whose jobs may all move now, by id.

    An instance is left out if a gang on it also has tasks on an instance that is left out.
    """
    found = {
        name: machine
        for name, machine in state.fleet.instances.items()
        if _open_from(state, machine) <= state.now
    }
    while True:
        tied = [
            name
            for name, machine in found.items()
            if any(slot.where not in found for job_id in machine.job_ids for slot in state.jobs[job_id].slots)
        ]
        if not tied:
            return found
        for name in tied:
            del found[name]


def _tasks_held(jobs: Iterable[JobRecord]) -> Mapping[str, list[TaskKey]]:
    """The tasks on each instance that these jobs use."""
    held: defaultdict[str, list[TaskKey]] = defaultdict(list)
    for record in jobs:
        for slot in record.slots:
            held[slot.where].append((record.id, slot.rank))
    return held


def _tasks(state: State, record: JobRecord) -> Iterator[Task]:
    left_s, move_s = _remaining_s(state, record), state.settings.move_s
    for slot in record.slots:
        yield Task(
            record.id,
            slot.rank,
            slot.resources,
            workload=state.fleet.speeds.name_of(record.job),
            remaining_s=left_s,
            move_s=move_s,
            moves=record.moves,
            offer_rules=record.job.offer_rules,
        )


def _remaining_s(state: State, record: JobRecord) -> float:
    """Estimated remaining run time of the job, seconds."""
    return cloud_run(record, state.now, state.runtime_s(record.job)).remaining_s


def _joins(state: State, machines: Mapping[str, InstanceRecord]) -> Iterator[Move]:
    """Moves that empty an instance: all its jobs join instances that are needed for longer anyway.

    A gang that goes on with fewer tasks stays: it would join with all of them.
    """
    until = {name: at for name, at in busy_until(state).items() if name not in machines}
    for name, machine in machines.items():
        jobs = [state.jobs[job_id] for job_id in machine.job_ids]
        whole = all(len(record.slots) == len(record.job.tasks) for record in jobs)
        if until and whole and all(slot.where == name for record in jobs for slot in record.slots):
            leavers = (leaver(state, record.job, _remaining_s(state, record)) for record in jobs)
            found = [state.fleet.join(each, until) for each in leavers]
            if all(found):
                yield from map(Move, jobs, found)


def _moves(plan: Plan, jobs: Iterable[JobRecord]) -> Iterator[Move]:
    """Moves of the plan, in order of arrival; an unplaced task keeps its slot, a gang stays together."""
    places = {task.key: name for name, tasks in plan.assignments.items() for task in tasks}
    for n, launching in enumerate(plan.launches):
        places |= {task.key: f"launch-{n}" for task in launching.tasks}
    for record in sorted(jobs, key=lambda record: record.seq):
        slots = tuple(
            Slot(slot.rank, places[key], slot.resources)
            if (key := (record.id, slot.rank)) in places
            else slot
            for slot in record.slots
        )
        together = len({slot.where for slot in slots}) == 1  # the tasks of a gang reach each other there
        if slots != record.slots and together:
            yield Move(record, slots)


def _possible(fleet: Fleet, moves: Iterable[Move]) -> list[Move]:
    """The moves whose targets have room while all jobs still hold their old slots.

    A run is stopped only once its target is ready, so old and new slots are held at the same time.
    """
    taken: dict[tuple[str, int], list[Resources]] = {}
    found = []
    for move in moves:
        more: dict[tuple[str, int], list[Resources]] = {}
        for slot in move.slots:
            at = slot.where, slot.node
            if slot not in move.record.slots and slot.where in fleet.instances:
                more.setdefault(at, list(taken.get(at, ()))).append(slot.resources)
        if all(total(needs).fits(fleet.instances[name].room(node)) for (name, node), needs in more.items()):
            taken |= more
            found.append(move)
    return found


def _groups(moves: Iterable[Move]) -> list[list[Move]]:
    """Partition of the moves into groups that share instances, directly or through other moves."""
    groups: list[tuple[set[str], list[Move]]] = []
    for move in moves:
        places, together = move.places, [move]
        apart = []
        for group in groups:
            if group[0] & places:
                places, together = places | group[0], [*group[1], *together]
            else:
                apart.append(group)
        groups = [*apart, (places, together)]
    return [sorted(together, key=lambda move: move.record.seq) for _, together in groups]


def _worth(state: State, group: Sequence[Move], new: Mapping[str, Offer]) -> Worth:
    """Saving and cost of a group of moves, by the formulas of the module's docstring."""
    movers = {move.record.id: {slot.where for slot in move.slots} for move in group}
    rates: dict[str, int] = {}
    before = after = 0.0
    fewer = 0
    for name in sorted(set().union(*(move.places for move in group))):
        machine = state.fleet.instances.get(name)
        rates[name] = (machine.rate if machine else state.fleet.rate(new[name])).micro_usd
        now = machine.job_ids if machine else []
        then = [job_id for job_id in now if job_id not in movers]
        then += [job_id for job_id, places in movers.items() if name in places]
        before += rates[name] * _longest_s(state, now) / HOUR_S
        after += rates[name] * _longest_s(state, then) / HOUR_S
        fewer += rates[name] * (bool(now) - bool(then))
    starts = sum(state.fleet.boot_s(new[name]) * rate for name, rate in rates.items() if name in new)
    move_s = state.settings.move_s
    delays = sum(
        (move_s + _pull_s(state, move.record.job, slot.where, new)) * (rates[old.where] + rates[slot.where])
        for move in group
        for old, slot in zip(move.record.slots, move.slots, strict=True)
        if old != slot
    )
    return Worth(before - after, (delays + starts) / HOUR_S, fewer)


def _pull_s(state: State, job: Job, place: str, new: Mapping[str, Offer]) -> float:
    """Seconds for which a job that moves waits for its image; `new` are places that are yet to be rented."""
    fleet = state.fleet
    if place not in new:
        return fleet.pull_s(job, fleet.instances[place])
    return max(0.0, fleet.speeds.pulls.expected_s(job.image) - fleet.boot_s(new[place])) if job.image else 0.0


def _longest_s(state: State, job_ids: Iterable[str]) -> float:
    return max((_remaining_s(state, state.jobs[job_id]) for job_id in job_ids), default=0.0)


def _carry_out(state: State, moves: Iterable[Move], new: Mapping[str, Offer]) -> None:
    """Begin every group of possible moves that saves more than it costs and that the caps can pay for."""
    for group in _groups(_possible(state.fleet, moves)):
        worth = _worth(state, group, new)
        jobs = [move.record.job for move in group]
        if worth.saves > worth.costs and affords(state, jobs, worth.costs):
            _begin(state, group, new, worth)


def _begin(state: State, group: Sequence[Move], new: Mapping[str, Offer], worth: Worth) -> None:
    """Launch the new instances, hold the target slots, and stop the jobs whose targets are ready.

    The other jobs run on until their last target instance is ready (`instance_ready`).
    """
    wanted = dict.fromkeys(slot.where for move in group for slot in move.slots if slot.where in new)
    rented = {place: state.fleet.launch(new[place], state.now) for place in wanted}
    for move in group:
        record = move.record
        record.moving = tuple(
            replace(slot, where=rented[slot.where].id) if slot.where in rented else slot
            for slot in move.slots
        )
        hold(state, record, tuple(dict.fromkeys((*record.slots, *record.moving))))
    for move in group:
        state.decide(
            move.record.id,
            "moving",
            old=where(move.record.slots),
            new=where(move.record.moving),
            others=", ".join(other.record.id for other in group if other is not move),
            saves=round(worth.saves),
            rate=worth.rate,
            costs=round(worth.costs),
        )
    for machine in rented.values():
        launch(state, machine)
    for move in group:
        if state.fleet.ready(move.record.moving):
            set_off(state, move.record)
        else:
            prepare(state, move.record, move.record.moving)
