"""Times that are expected, such as the ends of runs, and how many seconds there are until them in all."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import isinf

#: Parts of a scheduler second in which times are summed. Sums of integers do not depend on their order, so
#: that a restart, which adds the times in another order, decides alike.
PARTS = 1_000_000


class ExpectedTimes:
    """Jobs by id, each with the time that is expected of it; of one that is past, no seconds are left."""

    def __init__(self) -> None:
        self._jobs: set[str] = set()
        #: Times to come, in parts of a second.
        self._times: dict[str, int] = {}
        self._sum = 0
        #: (time, job), the earliest first; of times that have changed since as well.
        self._due: list[tuple[int, str]] = []
        #: Of the jobs whose time is past: since when each has been counted, and their sum.
        self._late: dict[str, int] = {}
        self._late_sum = 0
        self._since: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def expect(self, job_id: str, at: float, since: float = 0.0) -> None:
        """The time is expected to be this one, of a job that waits for it since then; infinity is unknown."""
        self.drop(job_id)
        self._jobs.add(job_id)
        self._since[job_id] = round(since * PARTS)
        if not isinf(at):
            time = self._times[job_id] = round(at * PARTS)
            self._sum += time
            heappush(self._due, (time, job_id))

    def drop(self, job_id: str) -> None:
        """Nothing is expected of the job any more; no effect if nothing was."""
        self._jobs.discard(job_id)
        self._sum -= self._times.pop(job_id, 0)
        self._late_sum -= self._late.pop(job_id, 0)
        self._since.pop(job_id, None)

    def rest_s(self, now: float) -> float:
        """Seconds from now to the times to come, summed; `now` never goes back."""
        at = round(now * PARTS)
        while self._due and self._due[0][0] <= at:
            time, job_id = heappop(self._due)
            if self._times.get(job_id) == time:
                self._sum -= self._times.pop(job_id)
                self._late[job_id] = since = self._since[job_id]
                self._late_sum += since
        return (self._sum - at * len(self._times)) / PARTS

    def late_s(self, now: float) -> float:
        """Seconds that the jobs whose time is past have waited for it, summed."""
        self.rest_s(now)
        return (round(now * PARTS) * len(self._late) - self._late_sum) / PARTS

    def past(self, now: float) -> int:
        """Number of jobs whose time is past or unknown."""
        self.rest_s(now)
        return len(self._jobs) - len(self._times)
