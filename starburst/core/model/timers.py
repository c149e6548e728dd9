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
        self._heap: list[tuple[float, int, str]] = []

    def set(self, at: float, record: JobRecord) -> None:
        """Set a timer; it fires only if the job's record still has the same time then."""
        heappush(self._heap, (at, record.seq, record.id))

    def pop_due(self, now: float) -> str | None:
        """Remove and return the job of the earliest due timer; None if none is due."""
        while self._heap and self._heap[0][0] <= now:
            at, _, job_id = heappop(self._heap)
            if self._time_of(job_id) == at:
                return job_id
        return None

    def next(self) -> float:
        """Time of the earliest valid timer; infinity if there is none."""
        while self._heap and self._time_of(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf
