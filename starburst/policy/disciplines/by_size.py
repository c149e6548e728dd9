"""Waiting jobs by size: the largest that fits some room, first come first of equals."""

from __future__ import annotations

from collections import deque

from starburst.policy.disciplines.intset import IntSet


class BySize:
    """A queue searched by size; every call takes O(log capacity)."""

    def __init__(self, capacity: int) -> None:
        self._sizes = IntSet(capacity)
        self._jobs: dict[int, deque[int]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __contains__(self, size: int) -> bool:
        return size in self._jobs

    def add(self, job: int, size: int) -> None:
        """A job joins."""
        self._waiting += 1
        if size in self._jobs:
            self._jobs[size].append(job)
        else:
            self._jobs[size] = deque((job,))
            self._sizes.add(size)

    def take(self, size: int) -> int:
        """The earliest job of exactly this size goes; there must be one."""
        jobs = self._jobs[size]
        job = jobs.popleft()
        self._waiting -= 1
        if not jobs:
            del self._jobs[size]
            self._sizes.remove(size)
        return job

    def largest(self, room: int) -> int | None:
        """The largest size that waits and is ≤ room."""
        return self._sizes.at_most(room)

    def smallest(self) -> int | None:
        """The smallest size that waits."""
        return self._sizes.at_least(0)
