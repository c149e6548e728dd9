"""Waiting jobs in order of arrival, out of which any may go."""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class Line:
    """Lower numbers came first, whenever they are put in. Every call takes O(log n), averaged over many."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._members: set[int] = set()
        #: May hold jobs that are gone, but never at its top.
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._members)

    @property
    def first(self) -> int | None:
        """Who came first."""
        return self._heap[0] if self._heap else None

    def add(self, job: int) -> None:
        """A job joins; it may have been in before."""
        self._members.add(job)
        heappush(self._heap, job)

    def remove(self, job: int) -> None:
        """A job goes; it must be there."""
        heap, members = self._heap, self._members
        members.remove(job)
        if len(heap) > 2 * len(members) + 64:
            heap[:] = members
            heapify(heap)
        while heap and heap[0] not in members:
            heappop(heap)
