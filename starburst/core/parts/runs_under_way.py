"""The runs under way, and how many seconds they still take in all, by their expected ends."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import isinf

#: Parts of a scheduler second in which ends are summed. Sums of integers do not depend on their order, so
#: that a restart, which adds the ends in another order, decides alike.
PARTS = 1_000_000


class RunsUnderWay:
    """Jobs by id, each with the expected end of its run; a run that outlasts its estimate has no rest."""

    def __init__(self) -> None:
        self._jobs: set[str] = set()
        #: Expected ends to come, in parts of a second.
        self._ends: dict[str, int] = {}
        self._sum = 0
        #: (end, job), the earliest first; of ends that have changed since as well.
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def expect(self, job_id: str, until: float) -> None:
        """The job runs, and is expected to do so until then; infinity is unknown."""
        self.drop(job_id)
        self._jobs.add(job_id)
        if not isinf(until):
            end = self._ends[job_id] = round(until * PARTS)
            self._sum += end
            heappush(self._due, (end, job_id))

    def drop(self, job_id: str) -> None:
        """The run is over; no effect if there is none."""
        self._jobs.discard(job_id)
        self._sum -= self._ends.pop(job_id, 0)

    def rest_s(self, now: float) -> float:
        """Seconds from now to the expected ends, summed over the runs; `now` never goes back."""
        at = round(now * PARTS)
        while self._due and self._due[0][0] <= at:
            end, job_id = heappop(self._due)
            if self._ends.get(job_id) == end:
                self._sum -= self._ends.pop(job_id)
        return (self._sum - at * len(self._ends)) / PARTS
