"""Running cloud jobs move together when that pays (Eva, sections 4.2 to 4.5, on what really runs).

Every so often we look at the machines all of whose jobs may move. If these find room on machines that others
need for longer anyway, they go there, as those who leave do (core/parts/fleet.py). The packer is shown the
other machines and says how it would use them. What is planned falls into groups of machines that jobs move
between; each group is carried out by itself, if by estimates

    saves = Σ rate · time until its last job is done, as the machines are used now, less the same if they move
    costs = Σ of tasks move_s · (rate here + rate there) + Σ of launches ready_s · rate

and saves > costs. The costs are M of Eva's equation 1: while a task moves both its machines are paid for. Eva
weighs them only to choose between two plans and by how long a plan lasts, never against what a job still has
to run; so the test does for every packer, and it takes nothing off a plan's worth a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from starburst.core.model.actions import Slot
from starburst.core.model.decisions import where
from starburst.core.model.estimates import cloud_run
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.fleet import Fleet, InstanceRecord
from starburst.core.state import State
from starburst.core.steps.budget import affords
from starburst.core.steps.offload import busy_until, launch, leaver
from starburst.core.steps.run_lifecycle import hold, set_off
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Phase, Task
from starburst.domain.resources import Resources, total
from starburst.policy.packing.plan import Plan, Rented, TaskKey

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Move:
    """A job and its slots after the move; a machine that is not there yet goes by its place in the plan."""

    record: JobRecord
    slots: tuple[Slot, ...]

    @property
    def places(self) -> set[str]:
        """Where it is and where it will be."""
        return {slot.where for slot in (*self.record.slots, *self.slots)}


@dataclass(frozen=True, slots=True)
class Worth:
    """What moves bring, micro-dollars; `rate` is how much less is paid per hour when they are done."""

    saves: float
    costs: float
    rate: int


def consolidate_at(state: State) -> float:
    """When running jobs are next reconsidered; infinity while none may move."""
    if not state.settings.pack_period_s or not state.fleet.shares:
        return inf
    first = min((_open_from(state, machine) for machine in state.fleet.instances.values()), default=inf)
    return max(first, state.next_round)


def consolidate(state: State) -> None:
    """Ask the packer about what runs, and let jobs move where that pays."""
    if consolidate_at(state) > state.now:
        return
    state.next_round = state.now + state.settings.pack_period_s
    _carry_out(state, _joins(state, _offered(state)), {})
    machines = _offered(state)
    jobs = {job_id: state.jobs[job_id] for machine in machines.values() for job_id in machine.job_ids}
    if not jobs:
        return
    rented = [Rented(name, machine.offer, _tasks_on(name, jobs)) for name, machine in machines.items()]
    tasks = [task for record in jobs.values() for task in _tasks(state, record)]
    plan = state.fleet.reconsider(tasks, rented, state.now)
    new = {f"launch-{n}": launching.offer for n, launching in enumerate(plan.launches)}
    _carry_out(state, _moves(plan, jobs.values()), new)


def _movable_from(state: State, record: JobRecord) -> float:
    """From when on a job may move; infinity while it may not."""
    unknown = (record.id, record.attempt) in state.unconfirmed_runs
    free = record.phase is Phase.RUNNING and not record.moving and record.id not in state.homesick
    if not (free and record.job.checkpoint) or unknown or record.started_at is None:
        return inf
    return record.started_at + state.settings.move_min_run_s


def _open_from(state: State, machine: InstanceRecord) -> float:
    """From when on all jobs of a machine may move; infinity while they may not."""
    up = machine.phase is InstancePhase.READY and machine.is_sound
    if not up or machine.id in state.unconfirmed_instances or machine.held.keys() != set(machine.job_ids):
        return inf
    return max((_movable_from(state, state.jobs[job_id]) for job_id in machine.job_ids), default=inf)


def _offered(state: State) -> dict[str, InstanceRecord]:
    """Machines all of whose jobs may move now, with all of their tasks."""
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


def _tasks_on(name: str, jobs: Mapping[str, JobRecord]) -> tuple[TaskKey, ...]:
    return tuple((r.id, slot.rank) for r in jobs.values() for slot in r.slots if slot.where == name)


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
    """What the job still has to run, by estimates."""
    return cloud_run(record, state.now, state.runtime_s(record.job)).remaining_s


def _joins(state: State, machines: Mapping[str, InstanceRecord]) -> Iterator[Move]:
    """From machines that would be empty then to others, which outlast whoever comes."""
    until = {name: at for name, at in busy_until(state).items() if name not in machines}
    for name, machine in machines.items():
        jobs = [state.jobs[job_id] for job_id in machine.job_ids]
        if until and all(slot.where == name for record in jobs for slot in record.slots):
            leavers = (leaver(state, record.job, _remaining_s(state, record)) for record in jobs)
            found = [state.fleet.join(each, until) for each in leavers]
            if all(found):
                yield from map(Move, jobs, found)


def _moves(plan: Plan, jobs: Iterable[JobRecord]) -> Iterator[Move]:
    """Whom the plan wants elsewhere, in order of arrival; a task that fits nothing stays where it is."""
    places = {task.key: name for name, tasks in plan.assignments.items() for task in tasks}
    for n, launching in enumerate(plan.launches):
        places |= {task.key: f"launch-{n}" for task in launching.tasks}
    for record in sorted(jobs, key=lambda record: record.seq):
        slots = tuple(
            Slot(slot.rank, places.get((record.id, slot.rank), slot.where), slot.resources)
            for slot in record.slots
        )
        if slots != record.slots:
            yield Move(record, slots)


def _possible(fleet: Fleet, moves: Iterable[Move]) -> list[Move]:
    """Those for which there is room while they are still where they were: nobody stops before that."""
    taken: dict[str, list[Resources]] = {}
    found = []
    for move in moves:
        more: dict[str, list[Resources]] = {}
        for slot in move.slots:
            if slot not in move.record.slots and slot.where in fleet.instances:
                more.setdefault(slot.where, list(taken.get(slot.where, ()))).append(slot.resources)
        if all(total(needs).fits(fleet.instances[name].free) for name, needs in more.items()):
            taken |= more
            found.append(move)
    return found


def _groups(moves: Iterable[Move]) -> list[list[Move]]:
    """Moves that share machines, directly or through others."""
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
    """What the moves of a group save, and what they cost; see above."""
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
    starts = sum(new[name].ready_s * rate for name, rate in rates.items() if name in new)
    delays = state.settings.move_s * sum(
        rates[old.where] + rates[slot.where]
        for move in group
        for old, slot in zip(move.record.slots, move.slots, strict=True)
        if old != slot
    )
    return Worth(before - after, (delays + starts) / HOUR_S, fewer)


def _longest_s(state: State, job_ids: Iterable[str]) -> float:
    return max((_remaining_s(state, state.jobs[job_id]) for job_id in job_ids), default=0.0)


def _carry_out(state: State, moves: Iterable[Move], new: Mapping[str, Offer]) -> None:
    """What is possible of these moves, and pays."""
    for group in _groups(_possible(state.fleet, moves)):
        worth = _worth(state, group, new)
        jobs = [move.record.job for move in group]
        if worth.saves > worth.costs and affords(state, jobs, worth.costs):
            _begin(state, group, new, worth)


def _begin(state: State, group: Sequence[Move], new: Mapping[str, Offer], worth: Worth) -> None:
    """Rent what is new, hold room for all, and stop whose room is there; the others run on until then."""
    wanted = dict.fromkeys(slot.where for move in group for slot in move.slots if slot.where in new)
    rented = {place: state.fleet.launch(new[place], state.now) for place in wanted}
    for move in group:
        record = move.record
        record.moving = tuple(
            Slot(slot.rank, rented[slot.where].id if slot.where in rented else slot.where, slot.resources)
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
