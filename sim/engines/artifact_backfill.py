"""Backfill as in the simulator published with Starburst, to reproduce its figures.

Starburst's own backfill is in `core.parts.passes`. The published rule is called EASY, but differs from
Lifka's (`skyburst/cluster.py`, try_reserve and try_fit_v2):

- The first job of the queue reserves specific GPUs permanently: it leaves the queue and cannot expire.
  Every pass may reserve for the job that is then first; a pass takes place when a job arrives, a run on the
  cluster ends or a wait expires, and at no other time.
- Expected ends of runs are visited in order. The reservation takes the first nodes, by index, with *exactly*
  the requested number of unreserved GPUs free by then; a larger number does not qualify. If the number never
  matches, the published simulator stops with an error; here nothing is reserved then.
- If that end is after the job's deadline, nothing is reserved and the job keeps waiting.
- Any other job may start now on GPUs that are not reserved before its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity
from starburst.core.parts.passes import InOrder, Start
from starburst.core.parts.queue import ShapeQueue
from starburst.core.state import State
from starburst.domain.job import Job

#: Node → indices of GPUs.
Gpus = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class _Reservation:
    record: JobRecord
    slots: tuple[Slot, ...]
    gpus: Gpus
    #: Expected start time.
    start: float


class ArtifactBackfill(InOrder):
    """A queue walk that tracks which GPUs each run holds and which are reserved for which job."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[str, Gpus] = {}
        self._reserved: list[_Reservation] = []
        #: Jobs in the queue after the last pass; whether a job has joined since.
        self._waiting: list[JobRecord] = []
        self._joined = False

    def joined(self, record: JobRecord) -> None:
        """A job joined the queue."""
        self._joined = True

    def walk(self, queue: ShapeQueue, capacity: Capacity) -> Iterator[Start]:
        """Jobs to start, in order; a job with a reservation leaves the queue."""
        held = {job_id: gpus for job_id, gpus in self._held.items() if self._runs(job_id)}
        expired = any(r.deadline <= self._state.now and r.id not in queue for r in self._waiting)
        if not (self._joined or expired or len(held) < len(self._held)):
            return  # the core also walks when a run starts or a cloud run ends
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
        """Start reserved jobs whose GPUs are now all free."""
        for one in list(self._reserved):
            if self._idle(one.gpus) == one.gpus and capacity.holds(one.slots):
                self._reserved.remove(one)
                self._held[one.record.id] = one.gpus
                queue.add(one.record)  # the caller removes it again
                yield one.record, one.slots, self._behind(one.record, queue)

    def _place(self, queue: ShapeQueue, capacity: Capacity, *, strict: bool) -> Iterator[Start]:
        """Jobs that fit beside reservations that begin before their end; `strict` ends at the first other."""
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
        """Free capacity minus the reservations that begin before `until`."""
        beside = capacity.copy()
        for one in self._reserved:
            if one.start < until:
                idle = self._idle(one.gpus)
                sizes = [replace(slot.resources, gpus=len(idle[slot.where])) for slot in one.slots]
                beside.take(Slot(s.rank, s.where, size) for s, size in zip(one.slots, sizes, strict=True))
        return beside

    def _free(self, capacity: Capacity, until: float) -> Gpus:
        """GPUs that no run holds and that are not reserved before `until`."""
        every = {node.name: list(range(node.capacity.gpus)) for node in capacity.nodes}
        idle = self._idle(every)
        return {node: self._unreserved(node, indices, until) for node, indices in idle.items()}

    def _idle(self, gpus: Gpus) -> Gpus:
        """Those of these GPUs that no run holds."""
        held = {(node, i) for run in self._held.values() for node, indices in run.items() for i in indices}
        return {node: [i for i in indices if (node, i) not in held] for node, indices in gpus.items()}

    def _unreserved(self, node: str, indices: list[int], until: float = float("inf")) -> list[int]:
        taken = {i for one in self._reserved if one.start < until for i in one.gpus.get(node, ())}
        return [i for i in indices if i not in taken]

    def _behind(self, record: JobRecord, queue: ShapeQueue) -> str:
        """Id of the first earlier job that is passed, or ""."""
        first = queue.first()
        waiting = [*(one.record for one in self._reserved), *[first] * (first is not None)]
        earlier = [(_key(r), r.id) for r in waiting if r is not None and _key(r) < _key(record)]
        return min(earlier)[1] if earlier else ""


def _key(record: JobRecord) -> tuple[float, int]:
    return record.order_key, record.seq


def _lowest(free: Gpus, slots: tuple[Slot, ...]) -> Gpus:
    """The GPUs of a job in these slots: the lowest free ones of each node. Removes them from `free`."""
    gpus: Gpus = {}
    for slot in slots:
        size = slot.resources.gpus
        gpus[slot.where] = gpus.get(slot.where, []) + free[slot.where][:size]
        free[slot.where] = free[slot.where][size:]
    return gpus


def _exact(job: Job, free: Gpus) -> tuple[Slot, ...]:
    """A separate node for each task, with exactly the required number of free GPUs; empty if impossible."""
    slots: list[Slot] = []
    for rank, need in enumerate(job.tasks):
        used = {slot.where for slot in slots}
        fitting = (node for node, gpus in free.items() if len(gpus) == need.gpus and node not in used)
        node = next(fitting, None)
        if node is None:
            return ()
        slots.append(Slot(rank, node, need))
    return tuple(slots)
