"""Prediction of the waits of queued jobs, by estimates of run times: who ends first makes room for whom.

The jobs start in the order of the queue, each as soon as the nodes have room for its tasks. Where jobs may
pass others, a small one starts in a hole that is too small for a large one ahead of it. What is predicted for
a large job is too short: jobs that have not arrived yet will pass it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: (seconds from now, number of the node, what becomes free there; negative: what is taken).
Change = tuple[float, int, int]

#: Sizes are rounded up to this part of the largest node, so that few sizes are told apart.
SIZES = 64
#: Jobs that are placed one by one; those behind them are served at the pace of all nodes.
ONE_BY_ONE = 2_000


class Need(NamedTuple):
    """What a job asks for, in one unit such as GPUs."""

    #: Of a task.
    size: int
    tasks: int = 1
    #: Whether each task takes a node that no other of its tasks is on.
    spread: bool = False


class Timeline:
    """What will be free on some nodes; times are in seconds from now. The jobs come in their order."""

    def __init__(self, nodes: Sequence[tuple[int, int]], ends: Iterable[Change], *, passes: bool) -> None:
        """`nodes`: capacity and free amount of each; `ends`: of the runs; `passes`: jobs may pass others."""
        self._free = [free for _, free in nodes]
        self._whole = sum(capacity for capacity, _ in nodes)
        self._unit = max(1, max((capacity for capacity, _ in nodes), default=1) // SIZES)
        #: In order of time, for all views.
        self._changes = sorted(ends)
        self._passes = passes
        self._placed = 0
        #: When the latest job starts, and how long the nodes are busy with those that were not placed.
        self._latest_s = self._behind_s = 0.0
        #: By rounded need, and by need.
        self._views: dict[Need, _View] = {}
        self._found: dict[Need, _View] = {}

    def start_s(self, need: Need) -> float:
        """When the next job can start.

        If all that runs frees too little, the last end is the best that is known.
        """
        start_s = self._view(need).find() + self._behind_s
        return start_s if self._passes else max(start_s, self._latest_s)

    def add(self, need: Need, runtime_s: float) -> None:
        """The next job waits, and runs so long once it has started."""
        self._placed += 1
        if self._placed > ONE_BY_ONE:
            self._behind_s += need.size * need.tasks * runtime_s / max(1, self._whole)
            return
        start_s = self._latest_s = self.start_s(need)
        for node, taken in self._view(need).nodes():
            for change in ((start_s, node, -taken), (start_s + runtime_s, node, taken)):
                insort(self._changes, change)
                for view in self._views.values():
                    if change[0] <= view.now_s:
                        view.passed(change)

    def _view(self, need: Need) -> _View:
        view = self._found.get(need)
        if view is None:
            size = -(-max(need.size, 1) // self._unit) * self._unit
            rounded = Need(size, need.tasks, need.spread)
            view = self._views.get(rounded) or _View(self._free, self._changes, rounded)
            self._found[need] = self._views[rounded] = view
        return view


class _View:
    """What is free at the first time at which there may be room for jobs of one need: it never goes back."""

    def __init__(self, free: Sequence[int], changes: Sequence[Change], need: Need) -> None:
        """`changes` are in order of time; who adds one that is not after `now_s` calls `passed`."""
        self._need = need
        self._size = need.size
        #: Largest number of tasks on a node.
        self._most = 1 if need.spread else need.tasks
        self.now_s = 0.0
        self._free = list(free)
        #: Number of tasks that there is room for, on each node that has room for one, and in all.
        self._open: dict[int, int] = {}
        self._tasks = 0
        for node in range(len(free)):
            self._change(node, 0)
        self._changes = changes
        #: Number of the changes that are over.
        self._over = 0

    def find(self) -> float:
        """The first time with room for the job, seconds from now."""
        changes, tasks = self._changes, self._need.tasks
        while self._over < len(changes):
            at_s, node, freed = changes[self._over]
            if self._tasks >= tasks and at_s > self.now_s:
                break
            self.now_s = max(self.now_s, at_s)
            self._over += 1
            self._change(node, freed)
        return self.now_s

    def nodes(self) -> list[tuple[int, int]]:
        """Where the job is placed, the fullest nodes first: numbers of nodes, and what it takes there."""
        left = self._need.tasks
        if self._tasks < left:
            return []
        if left == 1:
            return [(min(self._open, key=self._fullest), self._need.size)]
        found: list[tuple[int, int]] = []
        for node in sorted(self._open, key=self._fullest):
            here = min(self._open[node], left)
            found.append((node, here * self._need.size))
            left -= here
            if not left:
                break
        return found

    def passed(self, change: Change) -> None:
        """Something was taken or became free by `now_s`, in addition to what was known."""
        self._over += 1
        self._change(change[1], change[2])

    def _fullest(self, node: int) -> tuple[int, int]:
        return self._free[node], node

    def _change(self, node: int, freed: int) -> None:
        free = self._free[node] = self._free[node] + freed
        room = min(free // self._size, self._most) if free > 0 else 0
        before = self._open.get(node, 0)
        if room != before:
            self._tasks += room - before
            if room:
                self._open[node] = room
            else:
                del self._open[node]
