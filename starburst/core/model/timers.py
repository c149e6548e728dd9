"""Times at which jobs want attention."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from starburst.core.model.jobs import JobRecord


class Timers:
    """A heap of (time, arrival number, job). An entry counts only while the job still has that time."""

    def __init__(self, time_of: Callable[[str], float | None]) -> None:
        self._time_of = time_of
        self._heap: list[tuple[float, int, str]] = []

    def set(self, at: float, record: JobRecord) -> None:
        """Wake up for this job at `at`; its record must say the same time then."""
        heappush(self._heap, (at, record.seq, record.id))

    def pop_due(self, now: float) -> str | None:
        """The next job whose time has come, earliest first; None when there is none."""
        while self._heap and self._heap[0][0] <= now:
            at, _, job_id = heappop(self._heap)
            if self._time_of(job_id) == at:
                return job_id
        return None

    def next(self) -> float:
        """The earliest time; infinity if none."""
        while self._heap and self._time_of(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf
