"""The queue, with jobs grouped by shape.

Jobs of one shape fit or fail together, and free capacity only shrinks during a pass. A pass therefore tries
only the first job of each shape: once that fails, all others of the shape would fail too. The cost of a pass
is (jobs placed + distinct shapes) placement attempts, not one per queued job.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Shape

#: (order key, arrival number, job): its first two are the total order of the queue.
Entry = tuple[float, int, str]


@dataclass(frozen=True, slots=True)
class Passed:
    """The oldest queued job without a deadline, the times it was passed, and the nodes reserved for it."""

    job_id: str = ""
    count: int = 0
    nodes: tuple[str, ...] = ()


class ShapeQueue:
    """Queued jobs in a total order, indexed by the first job of every shape. Removal is lazy, O(log n).

    The order key of a record does not change while it is in the queue.
    """

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}
        #: The shape under which each is queued: one that left and came back under another has an old entry.
        self._shapes: dict[str, Shape] = {}
        self._heaps: dict[Shape, list[Entry]] = {}
        #: Heap of the negated keys, from the first use of a queue limit on; None before that.
        self._tail: list[Entry] | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._records

    def __iter__(self) -> Iterator[JobRecord]:
        """Every queued job, in order: O(n log n), for listings and checks only."""
        return iter(sorted(self._records.values(), key=lambda record: (record.order_key, record.seq)))

    def jobs(self) -> Iterable[JobRecord]:
        """Every queued job, in no particular order."""
        return self._records.values()

    def add(self, record: JobRecord) -> None:
        """Insert a job at its place in the order."""
        key, seq, job_id = record.order_key, record.seq, record.id
        self._records[job_id], self._shapes[job_id] = record, record.job.shape
        heapq.heappush(self._heaps.setdefault(record.job.shape, []), (key, seq, job_id))
        if self._tail is not None:
            heapq.heappush(self._tail, (-key, -seq, job_id))

    def remove(self, record: JobRecord) -> None:
        """Remove a job."""
        del self._records[record.id]
        shape = self._shapes.pop(record.id)
        if not self._prune(shape):
            del self._heaps[shape]
        if self._tail is not None and len(self._tail) > 64 and len(self._tail) > 2 * len(self._records):
            self._tail = self._make_tail()

    def shapes(self) -> Iterator[Shape]:
        """Distinct shapes in the queue."""
        return iter(self._heaps)

    def heads(self, shapes: Iterator[Shape]) -> list[Entry]:
        """A heap of the first jobs of these shapes."""
        heap = [heads[0] for shape in shapes if (heads := self._heaps.get(shape))]
        heapq.heapify(heap)
        return heap

    def head(self, shape: Shape) -> Entry | None:
        """The first job of a shape."""
        heap = self._heaps.get(shape)
        return heap[0] if heap else None

    def first(self) -> JobRecord | None:
        """The first job of the queue."""
        heads = self.heads(self.shapes())
        return self._records[heads[0][2]] if heads else None

    def get(self, job_id: str) -> JobRecord:
        """A queued job by id."""
        return self._records[job_id]

    def beyond(self, limit: float, may_leave: Callable[[JobRecord], bool]) -> list[JobRecord]:
        """The last jobs that `may_leave`, as many as exceed `limit`; O(log n) each."""
        if len(self._records) <= limit:
            return []
        if self._tail is None:
            self._tail = self._make_tail()
        leaving: list[JobRecord] = []
        seen: list[Entry] = []
        while self._tail and len(self._records) - len(leaving) > limit:
            entry = heapq.heappop(self._tail)
            queued = self._is_queued((-entry[0], -entry[1], entry[2]))
            if queued and entry not in seen[-1:]:  # a job that rejoined under its old key is there twice
                seen.append(entry)
                if may_leave(self._records[entry[2]]):
                    leaving.append(self._records[entry[2]])
        for entry in seen:
            heapq.heappush(self._tail, entry)
        return leaving

    def _make_tail(self) -> list[Entry]:
        tail = [(-record.order_key, -record.seq, job_id) for job_id, record in self._records.items()]
        heapq.heapify(tail)
        return tail

    def _is_queued(self, entry: Entry) -> bool:
        """Whether the job is in the queue under this key."""
        record = self._records.get(entry[2])
        return record is not None and record.order_key == entry[0] and record.seq == entry[1]

    def _is_of(self, shape: Shape, entry: Entry) -> bool:
        """Whether the job is in the queue under this key and this shape."""
        return self._is_queued(entry) and self._shapes[entry[2]] == shape

    def _prune(self, shape: Shape) -> bool:
        """Drop stale entries from the top of a shape's heap, or all of them once they are the majority.

        Returns whether any entry is left.
        """
        heap = self._heaps[shape]
        if len(heap) > 64 and len(heap) > 2 * len(self._records):
            heap[:] = {entry for entry in heap if self._is_of(shape, entry)}
            heapq.heapify(heap)
        while heap and not self._is_of(shape, heap[0]):
            heapq.heappop(heap)
        return bool(heap)
