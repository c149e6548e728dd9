"""Waiting jobs in order of arrival: the earliest job that fits some room."""

from __future__ import annotations

from collections import deque
from math import inf


class Earliest:
    """A queue searched for the earliest job up to a size: a tree of minima over the sizes.

    Memory is used only for sizes that occur; each call takes O(log capacity).
    """

    def __init__(self, capacity: int) -> None:
        self._leaves = 1 << (capacity + 1).bit_length()
        self._first: dict[int, float] = {}
        self._jobs: dict[int, deque[tuple[int, int]]] = {}
        self._seq = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, job: int, size: int) -> None:
        """A job joins the queue."""
        self._seq += 1
        self._waiting += 1
        jobs = self._jobs.setdefault(size, deque())
        jobs.append((self._seq, job))
        if len(jobs) == 1:
            self._update(size, self._seq)

    def take(self, room: int) -> tuple[int, int] | None:
        """Remove the earliest job of size ≤ room and return (job, size); None if there is none."""
        node = self._earliest(room)
        if node is None:
            return None
        first = self._first
        while node < self._leaves:
            node *= 2
            if first.get(node, inf) > first.get(node + 1, inf):
                node += 1
        size = node - self._leaves
        jobs = self._jobs[size]
        _, job = jobs.popleft()
        self._waiting -= 1
        self._update(size, jobs[0][0] if jobs else inf)
        return job, size

    def _earliest(self, room: int) -> int | None:
        """The node of the earliest job, among the nodes that together cover sizes 0 … room."""
        first, node, best, found = self._first, self._leaves + room + 1, inf, None
        while node > 1:
            if node & 1 and first.get(node - 1, inf) < best:
                best, found = first[node - 1], node - 1
            node >>= 1
        return found

    def _update(self, size: int, seq: float) -> None:
        first, node = self._first, self._leaves + size
        first[node] = seq
        while node > 1:
            seq = min(seq, first.get(node ^ 1, inf))
            node >>= 1
            if first.get(node) == seq:
                return
            first[node] = seq
