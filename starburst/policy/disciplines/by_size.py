"""Waiting jobs by size: the largest that fits some room, in order of arrival among equals."""

from __future__ import annotations

from sortedcontainers import SortedDict, SortedSet


class BySize:
    """A queue searched by size; every call takes O(log waiting)."""

    def __init__(self) -> None:
        #: Size → the jobs of that size, by arrival.
        self._jobs: SortedDict = SortedDict()
        self._size_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._size_of)

    def size(self, job: int) -> int | None:
        """The size of a job; None if it does not wait."""
        return self._size_of.get(job)

    def add(self, job: int, size: int) -> None:
        """Add a job."""
        self._size_of[job] = size
        if size not in self._jobs:
            self._jobs[size] = SortedSet()
        self._jobs[size].add(job)

    def take(self, size: int) -> int:
        """Remove and return the earliest job of exactly this size; there must be one."""
        job: int = self._jobs[size][0]
        self.remove(job)
        return job

    def remove(self, job: int) -> int:
        """Remove a job, which must be there, and return its size."""
        size = self._size_of.pop(job)
        jobs = self._jobs[size]
        jobs.remove(job)
        if not jobs:
            del self._jobs[size]
        return size

    def largest(self, room: int) -> int | None:
        """The largest size that waits and is ≤ room."""
        number = self._jobs.bisect_right(room)
        return self._jobs.keys()[number - 1] if number else None

    def smallest(self) -> int | None:
        """The smallest size that waits."""
        return self._jobs.keys()[0] if self._jobs else None
