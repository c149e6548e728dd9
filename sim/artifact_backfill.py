"""Backfill as in the simulator published with Starburst, to meet its figures; ours is `core.parts.passes`.

It is called EASY there, but differs from Lifka's (`skyburst/cluster.py`, try_reserve and try_fit_v2):

- The first job of the queue reserves certain GPUs, and keeps them: it is out of the queue and cannot expire.
  Every pass may reserve for the job that is first then; there is a pass whenever a job arrives, a run on the
  cluster ends or a wait expires, and at no other time.
- It looks at the expected ends of runs in order, and takes the first nodes, by index, with *exactly* as many
  GPUs as it asks for that are free by then and not reserved. More than that does not do. If they
  never are just as many, it stops with an error; here nothing is reserved then.
- An end after its own deadline comes too late: then nothing is reserved, and it goes on waiting.
- Any other job may start now on GPUs that are not reserved before it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity
from starburst.core.parts.passes import InOrder, Start
from starburst.core.parts.queue import Key, ShapeQueue
from starburst.core.state import State
from starburst.domain.job import Job

#: GPUs of nodes by index.
Gpus = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class _Reservation:
    record: JobRecord
    slots: tuple[Slot, ...]
    gpus: Gpus
    #: When it is expected to begin.
    start: float


class ArtifactBackfill(InOrder):
    """A walk that knows which GPUs a run holds, and which are promised to whom."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[str, Gpus] = {}
        self._reserved: list[_Reservation] = []
        #: Who was in the queue after the last pass; whether anybody joined since.
        self._waiting: list[JobRecord] = []
        self._joined = False

    def joined(self, record: JobRecord) -> None:
        """A job joined the queue."""
        self._joined = True

    def walk(self, queue: ShapeQueue, capacity: Capacity) -> Iterator[Start]:
        """Jobs to start, in order; what is reserved leaves the queue."""
        held = {job_id: gpus for job_id, gpus in self._held.items() if self._runs(job_id)}
        expired = any(r.deadline <= self._state.now and r.id not in queue for r in self._waiting)
        if not (self._joined or expired or len(held) < len(self._held)):
            return  # the core walks more often, when a run starts or one in the cloud ends
        self._held, self._joined = held, False
        yield from self._due(queue, capacity)
        yield from self._place(queue, capacity, strict=True)
        first = queue.first()
        if first is not None:
            self._reserve(first, queue, capacity)
            yield from self._place(queue, capacity, strict=False)
        self._waiting = list(queue)

    def _runs(self, job_id: str) -> bool:
        record = self._state.jobs.get(job_id)
        return record is not None and record.alive

    def _due(self, queue: ShapeQueue, capacity: Capacity) -> Iterator[Start]:
        """Reserved jobs all of whose GPUs are free now."""
        for one in list(self._reserved):
            if self._idle(one.gpus) == one.gpus and capacity.holds(one.slots):
                self._reserved.remove(one)
                self._held[one.record.id] = one.gpus
                queue.add(one.record)  # whoever asked takes it out again
                yield one.record, one.slots, self._behind(one.record, queue)

    def _place(self, queue: ShapeQueue, capacity: Capacity, *, strict: bool) -> Iterator[Start]:
        """Jobs that fit beside what is reserved until they end; strict stops at the first that does not."""
        for record in list(queue):
            until = self._state.now + self._state.runtime_s(record.job)
            slots = self._beside(capacity, until).place(record.job)
            if slots is not None:
                self._held[record.id] = _lowest(self._free(capacity, until), slots)
                yield record, slots, self._behind(record, queue)
            elif strict:
                return

    def _reserve(self, record: JobRecord, queue: ShapeQueue, capacity: Capacity) -> None:
        free = self._free(capacity, float("inf"))
        for end, gpus in sorted(self._ends(), key=lambda run: run[0]):
            if end > record.deadline:
                return
            for node, indices in gpus.items():
                free[node] += self._unreserved(node, indices)
            slots = _exact(record.job, free)
            if slots:
                reserved = {slot.where: sorted(free[slot.where]) for slot in slots}
                self._reserved.append(_Reservation(record, slots, reserved, end))
                queue.remove(record)
                return

    def _ends(self) -> Iterator[tuple[float, Gpus]]:
        """Expected ends of the runs on the cluster, with the GPUs they free."""
        for job_id, gpus in self._held.items():
            record = self._state.jobs[job_id]
            start = self._state.now if record.started_at is None else record.started_at
            yield start + self._state.runtime_s(record.job), gpus

    def _beside(self, capacity: Capacity, until: float) -> Capacity:
        """What is free without what is reserved from before `until` on."""
        beside = capacity.copy()
        for one in self._reserved:
            if one.start < until:
                idle = self._idle(one.gpus)
                sizes = [replace(slot.resources, gpus=len(idle[slot.where])) for slot in one.slots]
                beside.take(Slot(s.rank, s.where, size) for s, size in zip(one.slots, sizes, strict=True))
        return beside

    def _free(self, capacity: Capacity, until: float) -> Gpus:
        """GPUs that nobody holds and that are not reserved from before `until` on."""
        every = {node.name: list(range(node.capacity.gpus)) for node in capacity.nodes}
        idle = self._idle(every)
        return {node: self._unreserved(node, indices, until) for node, indices in idle.items()}

    def _idle(self, gpus: Gpus) -> Gpus:
        """Those of these GPUs that nobody holds."""
        held = {(node, i) for run in self._held.values() for node, indices in run.items() for i in indices}
        return {node: [i for i in indices if (node, i) not in held] for node, indices in gpus.items()}

    def _unreserved(self, node: str, indices: list[int], until: float = float("inf")) -> list[int]:
        taken = {i for one in self._reserved if one.start < until for i in one.gpus.get(node, ())}
        return [i for i in indices if i not in taken]

    def _behind(self, record: JobRecord, queue: ShapeQueue) -> str:
        """The first earlier job that stays behind, if any."""
        first = queue.first()
        waiting = [*(one.record for one in self._reserved), *[first] * (first is not None)]
        earlier = [(_key(r), r.id) for r in waiting if r is not None and _key(r) < _key(record)]
        return min(earlier)[1] if earlier else ""


def _key(record: JobRecord) -> Key:
    return record.order_key, record.seq


def _lowest(free: Gpus, slots: tuple[Slot, ...]) -> Gpus:
    """The GPUs that a job in these slots holds: of each node the lowest that are free. Uses `free` up."""
    gpus: Gpus = {}
    for slot in slots:
        size = slot.resources.gpus
        gpus[slot.where] = gpus.get(slot.where, []) + free[slot.where][:size]
        free[slot.where] = free[slot.where][size:]
    return gpus


def _exact(job: Job, free: Gpus) -> tuple[Slot, ...]:
    """A node of its own for every task with just as many free GPUs as it needs; empty if there are not."""
    slots: list[Slot] = []
    for rank, need in enumerate(job.tasks):
        used = {slot.where for slot in slots}
        fitting = (node for node, gpus in free.items() if len(gpus) == need.gpus and node not in used)
        node = next(fitting, None)
        if node is None:
            return ()
        slots.append(Slot(rank, node, need))
    return tuple(slots)
