"""Prediction of the waits of queued jobs, by estimates of run times: who ends first makes room for whom.

The jobs start in order, each as soon as enough has ended to make room for it. That is too long for a small
job, which may pass the jobs ahead of it, and too short where room is scattered over nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush


class Line:
    """A queue that is served in order. Sizes are in one unit, such as GPUs; times in seconds from now."""

    def __init__(self, free: float, ends: Iterable[tuple[float, float]]) -> None:
        """`free`: what is free now; `ends`: (time, size) of each present run, the earliest first."""
        self._free = free
        #: A sorted list is a heap.
        self._ends = list(ends)
        self._now_s = 0.0

    def wait_s(self, need: float) -> float:
        """When the next job can start if it asks for `need`.

        If all that runs frees too little, the last end is the best that is known.
        """
        while self._free < need and self._ends:
            end_s, size = heappop(self._ends)
            self._free += size
            self._now_s = max(self._now_s, end_s)
        return self._now_s

    def add(self, need: float, runtime_s: float) -> None:
        """The next job waits: it asks for `need`, and runs so long once it has started."""
        start_s = self.wait_s(need)
        self._free -= need
        heappush(self._ends, (start_s + runtime_s, need))
