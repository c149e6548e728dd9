"""Invariants of the state between two steps; a violation is a bug, never bad input.

Tests check them after every event, and the live scheduler before every commit if `debug.validate` is set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import isinf

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import StopReason
from starburst.core.parts.capacity import amount
from starburst.core.parts.discipline_pass import Disciplined
from starburst.core.parts.instance_record import OPEN_PHASES
from starburst.core.state import State
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import CloudChoice, Phase, Site
from starburst.domain.node import Node
from starburst.domain.resources import PODS, of_others, total
from starburst.policy.disciplines.registry import DISCIPLINES


class InvariantError(AssertionError):
    """The state contradicts itself.

    `problems` says how; `stories` has the latest decisions on the jobs and machines that a problem names.
    """

    def __init__(self, state: State, problems: list[str]) -> None:
        self.problems = problems
        named = {word for problem in problems for word in re.findall(r"[\w.-]+", problem)}
        subjects = dict.fromkeys(decision.subject for step in state.recent for decision in step)
        self.stories = {subject: state.story(subject) for subject in subjects if subject in named}
        stories = (f"the last decisions on {subject}: {story}" for subject, story in self.stories.items())
        super().__init__("; ".join([*problems, *stories]))


def validate(state: State) -> None:
    """Check every invariant.

    Raises:
        InvariantError: at least one does not hold.
    """
    checks = (_queue, _walk, _jobs, _gates, _meter, _nodes, _fleet, _machines_of_instances, _moves)
    broken = [problem for check in checks for problem in check(state)]
    if broken:
        raise InvariantError(state, broken)


def _queue(state: State) -> Iterator[str]:
    queued = {record.id for record in state.queue}
    expected = {
        r.id for r in state.jobs.values() if r.phase is Phase.QUEUED and r.job.cloud is not CloudChoice.ONLY
    }
    if queued != expected:
        yield f"queue and phases disagree on {sorted(queued ^ expected)}"
    if state.joining:
        yield f"{[r.id for r in state.joining]} neither joined nor left"
    due = [r.id for r in state.queue if not isinf(r.deadline) and r.deadline < state.now]
    if due and not state.resting:
        yield f"{due} overstayed their wait"


def _walk(state: State) -> Iterator[str]:
    """A discipline must agree with one that is rebuilt from queue, runs and configurations."""
    if not isinstance(state.walk, Disciplined):
        return
    again = Disciplined(DISCIPLINES[state.settings.order], state.runs)
    again.rebuild(state.queue, state.capacity, state.walk.configurations())
    if state.walk.picture() != again.picture():
        yield f"the walk errs on who waits or runs: {state.walk.picture()}, not {again.picture()}"
    kept, may = sorted(state.walk.configurations()), sorted(again.configurations())
    if not state.resting and kept != may:
        yield f"{kept} keep configurations, {may} may"


def _jobs(state: State) -> Iterator[str]:
    for record in state.jobs.values():
        holds = bool(record.slots)
        leaves = record.phase is Phase.OFFLOADING and record.id not in state.departing
        if (record.alive or leaves) != holds and not record.phase.is_end:
            yield f"{record.id} is {record.phase.value} and holds {len(record.slots)} slots"
        if record.reserved and record.stop_why is not StopReason.RETURN:
            yield f"{record.id} has slots reserved without being on its way home"
        if record.phase is Phase.STOPPING and not record.stop_why:
            yield f"{record.id} is being stopped for no reason"
        if record.returned and record.stop_why is StopReason.RETURN and record.site is Site.CLOUD:
            yield f"{record.id} comes home twice"


def _gates(state: State) -> Iterator[str]:
    """A blocked job has an unmet prerequisite; a job with a turn in an array is neither held nor blocked."""
    active = state.turns.active()
    for record in state.jobs.values():
        blocked = record.phase is Phase.BLOCKED
        place = record.job.array
        throttled = place is not None and place.at_once is not None
        turns = active.get(place.array, set()) if place is not None else set()
        waits = record.awaits or record.awaits_volumes
        reason = waits or record.not_before > state.now or record.doomed_by or (throttled and turns)
        if blocked and not reason and not state.resting and not state.freed:
            yield f"{record.id} is blocked for no reason"
        kept_out = blocked or record.phase is Phase.HELD
        if throttled and not record.phase.is_end and (record.id in turns) == kept_out:
            yield f"{record.id} is {record.phase.value}, and its turn says otherwise"
        if place is not None and place.at_once is not None and len(turns) > place.at_once:
            yield f"{len(turns)} jobs of {place.array} have turns"
        if record.held != (record.phase is Phase.HELD) and not record.phase.is_end:
            yield f"{record.id} is {record.phase.value} and {'' if record.held else 'not '}held"


def _meter(state: State) -> Iterator[str]:
    ours = {r.id for r in state.queue if r.job.cloud is not CloudChoice.NEVER and r.obstacle is None}
    if state.meter.calibrated and state.meter.waiting != ours:
        yield f"the meter errs on who waits: {sorted(state.meter.waiting ^ ours)}"
    running = {r.id for r in state.jobs.values() if r.alive and r.started_at is not None}
    if state.meter.calibrated and set(state.meter.running) != running:
        yield f"the meter errs on who runs: {sorted(running.symmetric_difference(state.meter.running))}"
    to_run = {r.id for r in state.jobs.values() if not r.phase.is_end and r.wait is not None} - running
    if state.meter.calibrated and state.meter.to_run != to_run:
        yield f"the meter errs on who will run: {sorted(state.meter.to_run ^ to_run)}"


def _cluster_slots(record: JobRecord) -> Iterator[Slot]:
    if record.alive and record.site is Site.CLUSTER:
        yield from record.slots
    yield from record.reserved


def _nodes(state: State) -> Iterator[str]:
    used: Counter[tuple[str, int]] = Counter()
    others: Counter[tuple[str, str]] = Counter()
    for record in state.jobs.values():
        for slot in _cluster_slots(record):
            for kind, units in enumerate(amount(slot.resources)):
                used[slot.where, kind] += units
            for name, units in slot.resources.others:
                others[slot.where, name] += units
    for node in state.capacity.nodes:
        free = amount(state.capacity.free(node.name))
        excused = state.resting or node.name in state.capacity.shrunk
        for kind, capacity in enumerate(amount(node.capacity)):
            if free[kind] + used.pop((node.name, kind), 0) != capacity:
                yield f"{node.name}: free and used do not add up to its capacity"
            if free[kind] < 0 and node.schedulable and not excused:
                yield f"{node.name} is over its capacity"
        yield from _others(state, node, others)
    if any(used.values()):
        yield f"jobs run on unknown nodes {sorted({name for name, _ in used})}"


def _others(state: State, node: Node, used: Counter[tuple[str, str]]) -> Iterator[str]:
    there, free = dict(node.capacity.others), dict(state.capacity.free(node.name).others)
    for name in {*there, *free} - {PODS}:
        if of_others(free, name) + used[node.name, name] != of_others(there, name):
            yield f"{node.name}: free and used {name} do not add up to its capacity"


def _fleet(state: State) -> Iterator[str]:
    bills: Counter[str] = Counter()
    for instance in state.fleet.instances.values():
        bills.update(instance.billed_to)
        if instance.phase in OPEN_PHASES and not instance.job_ids:
            yield f"{instance.id} is {instance.phase.value} for nobody"
        if min(amount(instance.free)) < 0:
            yield f"{instance.id} is over its capacity"
        for job_id in instance.job_ids:
            record = state.jobs.get(job_id)
            held = [slot for slot in _cloud_slots(record) if slot.where == instance.id] if record else []
            if not held:
                yield f"{instance.id} is kept for {job_id}, which does not use it"
            elif instance.held.get(job_id) not in (None, total(slot.resources for slot in held)):
                yield f"{instance.id} holds other slots for {job_id} than it has there"
    troubled = {i.id for i in state.fleet.instances.values() if i.unreachable_since is not None}
    troubled |= {i.id for i in state.fleet.instances.values() if i.unfit_since is not None}
    if state.fleet.troubled != troubled:
        yield f"{sorted(state.fleet.troubled ^ troubled)} are troubled on one side only"
    for record in state.jobs.values():
        if bills[record.id] != record.open_bills:
            yield f"{record.id} has {record.open_bills} open bills, not {bills[record.id]}"
        runs = record.phase in (Phase.STARTING, Phase.RUNNING) and record.site is Site.CLOUD
        if record.phase is Phase.OFFLOADING or runs:
            for slot in record.slots:
                instance_of = state.fleet.instances.get(slot.where)
                fenced = instance_of is not None and (
                    instance_of.unreachable_since is not None
                    or instance_of.unfit_since is not None
                    or instance_of.lost
                )
                if instance_of is None or (instance_of.phase is InstancePhase.TERMINATING and not fenced):
                    yield f"{record.id} is on {slot.where}, which is not ours any more"


def _machines_of_instances(state: State) -> Iterator[str]:
    """Of an instance of several machines none holds more than it has, and what each job holds is recorded."""
    for instance in (i for i in state.fleet.instances.values() if i.offer.nodes > 1):
        records = [state.jobs[job_id] for job_id in instance.job_ids if job_id in state.jobs]
        slots = {
            record.id: [slot for slot in _cloud_slots(record) if slot.where == instance.id]
            for record in records
        }
        for node in {slot.node for there in slots.values() for slot in there}:
            here = {
                job_id: total(slot.resources for slot in there if slot.node == node)
                for job_id, there in slots.items()
                if any(slot.node == node for slot in there)
            }
            if not total(here.values()).fits(instance.offer.resources):
                yield f"machine {node} of {instance.id} is over its capacity"
            if instance.room_is_known and here != instance.held_of(node):
                yield f"machine {node} of {instance.id} holds other slots than its jobs have there"
            phases = {state.jobs[job_id].phase for job_id in here} if node in instance.lost else set()
            if instance.phase in OPEN_PHASES and phases - {Phase.STOPPING}:
                yield f"machine {node} of {instance.id} is lost, and {sorted(here)} are there"
        if not instance.lost.keys() < set(range(instance.offer.nodes)):
            yield f"{instance.id} has lost {sorted(instance.lost)} of its {instance.offer.nodes} machines"


def _cloud_slots(record: JobRecord) -> Iterator[Slot]:
    """The job's cloud slots, present and target; a slot that stays the same in a move counts once."""
    yield from dict.fromkeys((*record.slots, *record.moving))


def _moves(state: State) -> Iterator[str]:
    """A job with a move runs or is stopped for it, and its target instances are usable and held for it."""
    for record in (r for r in state.jobs.values() if r.moving):
        leaves = record.phase is Phase.STOPPING and record.stop_why is StopReason.MOVE
        if not (leaves or record.phase is Phase.RUNNING) or record.site is not Site.CLOUD:
            yield f"{record.id} is {record.phase.value} and moves"
        targets = [state.fleet.instances.get(slot.where) for slot in record.moving]
        up = [i for i in targets if i and i.is_sound]
        if len(up) < len(targets) or any(record.id not in i.job_ids for i in up):
            yield f"{record.id} moves to where nothing is held for it"
        elif leaves != state.fleet.ready(record.moving):
            yield f"{record.id} is {record.phase.value}, but its move is not"
