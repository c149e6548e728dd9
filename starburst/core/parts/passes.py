"""Passes over the queue: which jobs start now, and on which nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity
from starburst.core.parts.queue import Entry, ShapeQueue
from starburst.domain.job import Shape
from starburst.policy.disciplines.configurations import Configuration

#: A job to start, its slots, and the id of the first earlier job that it passes, or "". The consumer must
#: take the slots and remove the job from the queue before it requests the next one.
Start = tuple[JobRecord, tuple[Slot, ...], str]


#: Node → its configuration under the discipline.
Configurations = Mapping[str, Configuration]


class Walk:
    """Interface of a pass, with notifications of changes between two passes; the default ignores them."""

    def joined(self, record: JobRecord) -> None:
        """A job joined the queue."""

    def left(self, record: JobRecord) -> None:
        """A job left the queue, for any reason."""

    def took(self, record: JobRecord, slots: Iterable[Slot]) -> None:
        """A job holds these slots of the cluster now."""

    def gave(self, record: JobRecord, slots: Iterable[Slot]) -> None:
        """A job has released these slots of the cluster."""

    def grew(self, queue: ShapeQueue) -> None:
        """Capacity was freed or added: every shape is tried again."""

    def rebuild(self, queue: ShapeQueue, capacity: Capacity, known: Configurations) -> None:
        """Nodes changed, or the scheduler restarted; `known`: the stored configurations."""

    def configurations(self) -> Configurations:
        """Data for a restart that cannot be derived from queue, runs and nodes."""
        return {}

    @property
    def is_idle(self) -> bool:
        """Whether a pass now would certainly start nothing; False if unknown."""
        return False

    def walk(self, queue: ShapeQueue, capacity: Capacity) -> Iterator[Start]:
        """Jobs to start, in order."""
        raise NotImplementedError


class OutOfOrder(Walk):
    """Tries every job in order and skips those that do not fit.

    A shape that failed stays blocked until capacity grows, so an arrival of a blocked shape costs nothing.
    """

    def __init__(self) -> None:
        self._blocked: set[Shape] = set()
        self._untried: set[Shape] = set()

    def joined(self, record: JobRecord) -> None:
        """A job joined the queue."""
        self.arrived(record.job.shape)

    def arrived(self, shape: Shape) -> None:
        """A job of this shape joined the queue."""
        if shape not in self._blocked:
            self._untried.add(shape)

    def grew(self, queue: ShapeQueue) -> None:
        """Capacity was freed or added: every shape is tried again."""
        self.retry(queue.shapes())

    @property
    def is_idle(self) -> bool:
        """Whether no shape has been queued or unblocked since the last pass."""
        return not self._untried

    def retry(self, shapes: Iterable[Shape]) -> None:
        """Unblock all shapes, and try these in the next pass."""
        self._blocked.clear()
        self._untried.update(shapes)

    def walk(self, queue: ShapeQueue, capacity: Capacity) -> Iterator[Start]:
        """Jobs to start, in order."""
        heads = queue.heads(iter(self._untried))
        self._untried.clear()
        behind = self._first_blocked(queue) if heads and self._blocked else None
        while heads:
            head = heappop(heads)
            record = queue.get(head[2])
            shape = record.job.shape
            slots = capacity.place(record.job)
            if slots is None:
                self._blocked.add(shape)
                behind = min(behind, head) if behind else head
                continue
            yield record, slots, behind[2] if behind and behind < head else ""
            following = queue.head(shape)
            if following is not None:
                heappush(heads, following)

    def _first_blocked(self, queue: ShapeQueue) -> Entry | None:
        heads = (queue.head(shape) for shape in self._blocked)
        return min((head for head in heads if head is not None), default=None)


class InOrder(Walk):
    """Stops at the first job that does not fit."""

    def walk(self, queue: ShapeQueue, capacity: Capacity) -> Iterator[Start]:
        """Jobs to start, in order."""
        while (record := queue.first()) is not None and (slots := capacity.place(record.job)) is not None:
            yield record, slots, ""


#: When the runs on the cluster are expected to end: (time, slots).
ExpectedEnds = Callable[[], list[tuple[float, tuple[Slot, ...]]]]


class EasyBackfill(InOrder):
    """In order, but later jobs may start if they do not delay the first (EASY, Lifka 1995).

    The first job gets a reservation at the earliest time at which enough runs are expected to have ended. A
    later job may start now if it is expected to end by then, or if it fits beside the reservation.
    """

    def __init__(self, expected_ends: ExpectedEnds, expected_end: Callable[[JobRecord], float]) -> None:
        self._expected_ends = expected_ends
        self._expected_end = expected_end

    def walk(self, queue: ShapeQueue, capacity: Capacity) -> Iterator[Start]:
        """Jobs to start, in order."""
        yield from super().walk(queue, capacity)
        first = queue.first()
        if first is None:
            return
        reserved_at, then = self._reserve(first, capacity)
        failed: set[Shape] = set()
        for record in list(queue)[1:]:
            shape = record.job.shape
            if shape in failed:
                continue
            slots = capacity.place(record.job)
            if slots is None:
                failed.add(shape)
            elif self._expected_end(record) <= reserved_at:
                yield record, slots, first.id
            elif then.holds(slots):
                then.take(slots)
                yield record, slots, first.id

    def _reserve(self, first: JobRecord, capacity: Capacity) -> tuple[float, Capacity]:
        """Expected start of the first job, and the capacity that is then free beside it."""
        then = capacity.copy()
        for end, slots in sorted(self._expected_ends(), key=lambda run: run[0]):
            then.give(slots)
            home = then.place(first.job)
            if home is not None:
                then.take(home)
                return end, then
        return float("inf"), then
