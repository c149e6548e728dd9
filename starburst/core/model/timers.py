"""Timers of jobs: deadlines, T_max, ends of pauses."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from starburst.core.model.jobs import JobRecord


class Timers:
    """A heap of (time, arrival number, job). An entry is valid only while the job still has that time."""

    def __init__(self, time_of: Callable[[str], float | None]) -> None:
        self._time_of = time_of
        #: Entries that are no longer valid included.
        self.heap: list[tuple[float, int, str]] = []

    def set(self, at: float, record: JobRecord) -> None:
        """Set a timer; it fires only if the job's record still has the same time then."""
        heappush(self.heap, (at, record.seq, record.job.id))

    def pop_due(self, now: float) -> str | None:
        """Remove and return the job of the earliest due timer; None if none is due."""
        heap = self.heap
        while heap and heap[0][0] <= now:
            at, _, job_id = heappop(heap)
            if self._time_of(job_id) == at:
                return job_id
        return None

    def next(self) -> float:
        """Time of the earliest valid timer; infinity if there is none."""
        heap = self.heap
        while heap:
            at, _, job_id = heap[0]
            if self._time_of(job_id) == at:
                return at
            heappop(heap)
        return inf
