"""Waiting jobs by size: the largest that fits some room, first come first of equals."""

from __future__ import annotations

from starburst.policy.disciplines.intset import IntSet
from starburst.policy.disciplines.line import Line


class BySize:
    """A queue searched by size; every call takes O(log capacity + log waiting)."""

    def __init__(self, capacity: int) -> None:
        self._sizes = IntSet(capacity)
        self._jobs: dict[int, Line] = {}
        self._size_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._size_of)

    def size(self, job: int) -> int | None:
        """The size of a job; None if it does not wait."""
        return self._size_of.get(job)

    def add(self, job: int, size: int) -> None:
        """A job joins."""
        self._size_of[job] = size
        if size not in self._jobs:
            self._jobs[size] = Line()
            self._sizes.add(size)
        self._jobs[size].add(job)

    def take(self, size: int) -> int:
        """The earliest job of exactly this size goes; there must be one."""
        job = self._jobs[size].first
        assert job is not None
        self.remove(job)
        return job

    def remove(self, job: int) -> int:
        """This job goes, which must be there; says its size."""
        size = self._size_of.pop(job)
        jobs = self._jobs[size]
        jobs.remove(job)
        if not jobs:
            del self._jobs[size]
            self._sizes.remove(size)
        return size

    def largest(self, room: int) -> int | None:
        """The largest size that waits and is ≤ room."""
        return self._sizes.at_most(room)

    def smallest(self) -> int | None:
        """The smallest size that waits."""
        return self._sizes.at_least(0)
