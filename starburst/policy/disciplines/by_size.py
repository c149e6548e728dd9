"""Waiting jobs indexed by size: the largest size that fits some room; equal sizes in order of arrival."""

from __future__ import annotations

from sortedcontainers import SortedDict, SortedSet


class BySize:
    """A queue searched by size; each call takes O(log n) for n waiting jobs."""

    def __init__(self) -> None:
        #: Size → the jobs of that size, by arrival.
        self._jobs: SortedDict = SortedDict()
        self._size_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._size_of)

    def size(self, job: int) -> int | None:
        """The size of a job; None if it is not waiting."""
        return self._size_of.get(job)

    def add(self, job: int, size: int) -> None:
        """Add a job."""
        self._size_of[job] = size
        if size not in self._jobs:
            self._jobs[size] = SortedSet()
        self._jobs[size].add(job)

    def take(self, size: int) -> int:
        """Remove and return the earliest job of exactly this size; such a job must exist."""
        job: int = self._jobs[size][0]
        self.remove(job)
        return job

    def remove(self, job: int) -> int:
        """Remove a job, which must be in the queue, and return its size."""
        size = self._size_of.pop(job)
        jobs = self._jobs[size]
        jobs.remove(job)
        if not jobs:
            del self._jobs[size]
        return size

    def largest(self, room: int) -> int | None:
        """The largest waiting size ≤ room; None if there is none."""
        number = self._jobs.bisect_right(room)
        return self._jobs.keys()[number - 1] if number else None

    def smallest(self) -> int | None:
        """The smallest waiting size; None if the queue is empty."""
        return self._jobs.keys()[0] if self._jobs else None
