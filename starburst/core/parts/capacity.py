"""Free capacity of the cluster's nodes, and placement of gangs on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from starburst.core.model.actions import Slot
from starburst.core.parts.gpu_index import GpuIndex
from starburst.domain.constraints import Rules
from starburst.domain.gpu_types import takes
from starburst.domain.job import Job, Shape
from starburst.domain.node import Node
from starburst.domain.resources import PODS, Resources, of_one_type, of_others, others_fit
from starburst.policy.placement import Amount, Score, first_fit


def amount(resources: Resources) -> Amount:
    """The triple (GPUs, CPU milli, MiB) that placement policies use."""
    return (resources.gpus, resources.cpu_milli, resources.memory_mib)


@dataclass(slots=True)
class _NodeState:
    node: Node
    capacity: Amount
    free: Amount
    #: Number of slots in use, including slots without resources.
    held: int = 0
    #: No longer reported; removed once it is empty.
    left: bool = False
    #: Free amounts of other resources by name; empty if the node does not count them.
    others: dict[str, int] = field(default_factory=dict)
    #: Position among the nodes, in the order of the report.
    position: int = 0

    def add(self, part: Resources, times: int) -> None:
        """Add `times` (1 or -1) times a slot to the free resources; plain integers, for speed."""
        gpus, cpu, memory = self.free
        self.free = (
            gpus + times * part.gpus,
            cpu + times * part.cpu_milli,
            memory + times * part.memory_mib,
        )
        self.held -= times
        if part.others and self.others:
            for name, units in part.others:
                self.others[name] = of_others(self.others, name) + times * units

    def lacks_others(self, demand: Resources) -> bool:
        """Whether the node counts other resources and has too little of one, or takes no further task."""
        others = self.others
        if not others:
            return False
        return others.get(PODS, self.held + 1) <= self.held or not others_fit(demand.others, others)

    def is_overfull(self) -> bool:
        """Whether more is in use than there is."""
        others = self.others
        if others and (others.get(PODS, self.held) < self.held or min(others.values()) < 0):
            return True
        return min(self.free) < 0


class Capacity:
    """Free resources of every node; a gang is placed as a whole or not at all."""

    def __init__(self, nodes: Iterable[Node], score: Score) -> None:
        self._score = score
        self._states: dict[str, _NodeState] = {}
        #: The states by position, and the positions by free GPUs.
        self._by_position: list[_NodeState] = []
        self._gpus = GpuIndex(())
        self._ever: dict[Shape, bool] = {}
        self._candidates: dict[Shape, frozenset[str]] = {}
        #: Nodes on which more was in use than they had when they were last reported.
        self.shrunk: frozenset[str] = frozenset()
        #: Nodes without GPUs: jobs without GPUs are placed there first.
        self._plain: dict[str, _NodeState] = {}
        #: Slots set aside for jobs without GPUs that have not joined the queue yet (`promise_plain`).
        self.promised: list[Slot] = []
        #: Nodes reserved for one job (core/steps/starvation.py).
        self._kept_for = ""
        self._kept: frozenset[str] = frozenset()
        self.update(nodes)

    @property
    def nodes(self) -> list[Node]:
        """The nodes as last reported; one that left stays, unschedulable, until it is empty."""
        return [state.node for state in self._states.values()]

    def free(self, name: str) -> Resources:
        """Free resources of a node."""
        state = self._states[name]
        return Resources(*state.free, state.node.capacity.gpu_type, tuple(sorted(state.others.items())))

    def update(self, nodes: Iterable[Node]) -> None:
        """Replace the list of nodes; slots in use stay in use, even if the capacity is now smaller."""
        self._ever.clear()
        self._candidates.clear()
        reported = {node.name: node for node in nodes}
        states: dict[str, _NodeState] = {}
        for name, node in reported.items():
            was = self._states.get(name)
            state = states[name] = _NodeState(node, amount(node.capacity), amount(node.capacity))
            state.others = dict(node.capacity.others)
            if was is not None:
                state.add(was.node.capacity - self.free(name), -1)
                state.held = was.held
        for name, state in self._states.items():
            if name not in reported and state.held:
                left = replace(state.node, schedulable=False)
                states[name] = replace(state, node=left, left=True)
        self._states = states
        self._index()
        self._plain = {name: state for name, state in states.items() if not state.node.capacity.gpus}
        self.shrunk = frozenset(name for name, state in states.items() if min(state.free) < 0)

    def _index(self) -> None:
        """Number the nodes anew."""
        self._by_position = list(self._states.values())
        for position, state in enumerate(self._by_position):
            state.position = position
        self._gpus = GpuIndex([state.free[0] for state in self._by_position])

    def _add(self, slot: Slot, times: int) -> _NodeState:
        """Add `times` (1 or -1) times a slot to the free resources of its node."""
        state = self._states[slot.where]
        before = state.free[0]
        state.add(slot.resources, times)
        if state.free[0] != before:
            self._gpus.change(state.position, before, state.free[0])
        return state

    def place(self, job: Job) -> tuple[Slot, ...] | None:
        """Slots for every task of a job, or None if not all of them fit now. Takes nothing."""
        if len(job.tasks) == 1:
            name = self._best(job.tasks[0], job)
            return None if name is None else (Slot(0, name, job.tasks[0]),)
        slots = self.place_first(job)
        return slots if len(slots) == len(job.tasks) else None

    def place_first(self, job: Job) -> tuple[Slot, ...]:
        """Slots for the first tasks of a gang, as many as fit now, of one type of GPU. Takes nothing."""
        most: tuple[Slot, ...] = ()
        for tasks in of_one_type(job.tasks):
            slots = self._place_first(job, tasks)
            if len(slots) == len(tasks):
                return slots
            most = max(most, slots, key=len)
        return most

    def _place_first(self, job: Job, tasks: tuple[Resources, ...]) -> tuple[Slot, ...]:
        slots: list[Slot] = []
        for rank, demand in enumerate(tasks):
            name = self._best(demand, job, {slot.where for slot in slots} if job.spread else ())
            if name is None:
                break
            slots.append(Slot(rank, name, job.tasks[rank]))
            self.take(slots[-1:])  # the next tasks of the gang must not use the same resources
        self.give(slots)
        return tuple(slots)

    def promise_plain(self, job: Job) -> bool:
        """Set room on nodes without GPUs aside for a job without GPUs; returns whether they have it now.

        The room is free again after `end_promises`, when the job is in the queue.
        """
        slots = self.place(job) if self._plain else None
        if slots is None or any(slot.where not in self._plain for slot in slots):
            return False
        self.take(slots)
        self.promised += slots
        return True

    def end_promises(self) -> None:
        """Free the room that was set aside for jobs that have joined the queue."""
        if self.promised:
            self.give(self.promised)
            self.promised.clear()

    def would_hold(self, job: Job, freed: Callable[[str], Resources]) -> tuple[str, ...]:
        """Nodes for a job's tasks if `freed(node)` were free as well; empty if not all of them fit."""
        ways = (self._would_hold(job, tasks, freed) for tasks in of_one_type(job.tasks))
        return next(filter(None, ways), ())

    def _would_hold(
        self, job: Job, tasks: tuple[Resources, ...], freed: Callable[[str], Resources]
    ) -> tuple[str, ...]:
        states = list(self._states.values())
        names: list[str] = []
        #: What is left on the nodes that were looked at; and the first node that may hold such a task.
        left: dict[str, Resources] = {}
        first, before = 0, None
        for demand in tasks:
            first, before = first if demand == before else 0, demand
            for number in range(first, len(states)):
                name = states[number].node.name
                if not _suits(states[number].node, demand, job) or (job.spread and name in names):
                    continue
                if name not in left:
                    left[name] = _known(states[number], self.free(name) + freed(name))
                if demand.fits(left[name]):
                    left[name] = _known(states[number], left[name] - demand)
                    names.append(name)
                    first = number
                    break
            else:
                return ()
        return tuple(names)

    def holds(self, slots: Iterable[Slot]) -> bool:
        """Whether these slots are all free."""
        slots = tuple(slots)
        self.take(slots)
        ok = not any(self._states[slot.where].is_overfull() for slot in slots)
        self.give(slots)
        return ok

    def keep(self, job_id: str, names: Iterable[str]) -> None:
        """Reserve exactly these nodes for one job: no other job is placed on them."""
        self._kept_for, self._kept = job_id, frozenset(names)

    def has(self, names: Iterable[str]) -> bool:
        """Whether these nodes exist and are schedulable."""
        return all(name in self._states and self._states[name].node.schedulable for name in names)

    def suffices(self, names: Iterable[str], job: Job) -> bool:
        """Whether the job would fit on these nodes if nothing else ran there."""
        nodes = (self._states[name].node for name in names if name in self._states)
        return Capacity(nodes, self._score).place(job) is not None

    def up(self, slots: Iterable[Slot]) -> bool:
        """Whether the nodes of these slots are schedulable."""
        return all(self._states[slot.where].node.schedulable for slot in slots)

    def take(self, slots: Iterable[Slot]) -> None:
        """Mark slots as in use."""
        for slot in slots:
            self._add(slot, -1)

    def give(self, slots: Iterable[Slot]) -> None:
        """Free slots; a node that left the cluster is removed once it is empty."""
        for slot in slots:
            state = self._add(slot, 1)
            if state.left and not state.held:
                del self._states[slot.where]
                self._plain.pop(slot.where, None)
                self._index()

    def ever(self, job: Job) -> bool:
        """Whether the job would fit an empty cluster with every node schedulable; cached by shape."""
        known = self._ever.get(job.shape)
        if known is None:
            up = (replace(state.node, schedulable=True) for state in self._states.values() if not state.left)
            empty = Capacity(up, self._score)
            known = self._ever[job.shape] = empty.place(job) is not None
        return known

    def candidates(self, job: Job) -> frozenset[str]:
        """Nodes that admit one of the job's tasks, if they had room; cached by shape."""
        known = self._candidates.get(job.shape)
        if known is None:
            names = (
                name
                for name, state in self._states.items()
                if any(_suits(state.node, demand, job) for demand in job.tasks)
            )
            known = self._candidates[job.shape] = frozenset(names)
        return known

    def room(self, names: Iterable[str]) -> Iterator[tuple[Amount, Amount]]:
        """Capacity and free amounts of some nodes."""
        for name in names:
            state = self._states[name]
            yield state.capacity, state.free

    def copy(self) -> Capacity:
        """An independent copy for trial placements."""
        twin = Capacity((), self._score)
        twin._states = {name: replace(s, others=dict(s.others)) for name, s in self._states.items()}
        twin._index()
        twin._plain = {name: twin._states[name] for name in self._plain}
        return twin

    def _best(self, demand: Resources, job: Job, besides: Collection[str] = ()) -> str | None:
        """The node with the best score that has room, none of `besides`; None if none has room."""
        if demand.gpus:
            enough = map(self._by_position.__getitem__, self._gpus.at_least(demand.gpus))
            return self._best_of(enough, demand, job, besides)
        plain = self._best_of(self._plain.values(), demand, job, besides) if self._plain else None
        return plain or self._best_of(self._states.values(), demand, job, besides)

    def _best_of(
        self, states: Iterable[_NodeState], demand: Resources, job: Job, besides: Collection[str]
    ) -> str | None:
        gpus, cpu, memory = want = amount(demand)
        score = self._score
        closed = self._kept if job.id != self._kept_for else ()
        best_name, best_score = None, None
        for state in states:
            free, name = state.free, state.node.name
            if gpus > free[0] or cpu > free[1] or memory > free[2] or not _suits(state.node, demand, job):
                continue
            if (closed and name in closed) or (besides and name in besides):
                continue
            if state.others and state.lacks_others(demand):
                continue
            if score is first_fit:
                return name
            value = score(free, state.capacity, want)
            if best_score is None or value < best_score:  # type: ignore[operator]
                best_name, best_score = name, value
        return best_name


def _known(state: _NodeState, room: Resources) -> Resources:
    """Room on a node, without other resources if none was reported for it."""
    return room if state.others or not room.others else replace(room, others=())


def _suits(node: Node, demand: Resources, job: Job) -> bool:
    if not node.schedulable:
        return False
    if demand.gpus and not takes(demand.gpu_type, node.capacity.gpu_type):
        return False
    if job.node_selector and not all(pair in node.labels for pair in job.node_selector):
        return False
    if not node.taints and not job.rules.affinity and not job.volume_affinity:
        return True
    labels = dict(node.labels)
    return job.rules.admits(node.name, labels, node.taints) and Rules(job.volume_affinity).admits(
        node.name, labels, ()
    )
