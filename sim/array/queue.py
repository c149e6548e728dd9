"""The waiting jobs: a heap per group, of which a walk looks at the first job only.

Out of order a group is a shape, as in the core: jobs of one shape fit or fail together. In strict order all
jobs are one group. Removal is lazy; heaps that hold mostly jobs that have left are swept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.array import sets
from sim.array.columns import Columns
from sim.array.compiled import compiled
from sim.array.heaps import prune, push, sweep
from sim.trace import Bools, Ints


class Queue(NamedTuple):
    """Jobs by their number in the trace."""

    waits: Bools
    #: How many wait (one entry).
    length: Ints
    group: Ints
    #: The heap of group g lies between `heap_first[g]` and `heap_first[g + 1]`.
    heaps: Ints
    heap_first: Ints
    #: All that wait, by deadline, and last first.
    deadlines: Ints
    tail: Ints
    #: Sets of groups: with a job waiting; blocked until capacity grows, as they did not fit; to be tried.
    present: Ints
    blocked: Ints
    untried: Ints
    #: For one walk: the first jobs' ranks by group, and a heap of groups by it.
    head: Ints
    heads: Ints


def queue(jobs: Columns, out_of_order: bool) -> Queue:
    """Nobody waits yet."""
    n, groups = len(jobs.arrival), len(jobs.task_first) - 1 if out_of_order else 1
    group = jobs.shape if out_of_order else np.zeros(n, np.int64)
    heap_sizes = 1 + np.bincount(group, minlength=groups)
    return Queue(
        waits=np.zeros(n, bool),
        length=np.zeros(1, np.int64),
        group=group,
        heaps=np.zeros(n + groups, np.int64),
        heap_first=np.concatenate(([0], np.cumsum(heap_sizes))),
        deadlines=np.zeros(n + 1, np.int64),
        tail=np.zeros(n + 1, np.int64),
        present=sets.empty(groups),
        blocked=sets.empty(groups),
        untried=sets.empty(groups),
        head=np.zeros(groups, np.int64),
        heads=np.zeros(groups + 1, np.int64),
    )


@compiled
def _heap(waiting: Queue, group: int) -> Ints:
    return waiting.heaps[waiting.heap_first[group] : waiting.heap_first[group + 1]]


@compiled
def first_of(waiting: Queue, group: int) -> int:
    """The first job of a group that has one."""
    return int(waiting.heaps[waiting.heap_first[group] + 1])


@compiled
def join(jobs: Columns, waiting: Queue, job: int) -> None:
    """Take a place in the queue."""
    group = waiting.group[job]
    waiting.waits[job] = True
    waiting.length[0] += 1
    push(_heap(waiting, group), jobs.rank, job)
    push(waiting.tail, jobs.last, job)
    if jobs.deadline[job] < np.inf:
        push(waiting.deadlines, jobs.deadline, job)
    sets.add(waiting.present, group)
    if not sets.has(waiting.blocked, group):
        sets.add(waiting.untried, group)


@compiled
def remove(jobs: Columns, waiting: Queue, job: int) -> None:
    """Leave the queue."""
    group = waiting.group[job]
    waiting.waits[job] = False
    waiting.length[0] -= 1
    heap = _heap(waiting, group)
    prune(heap, jobs.rank, waiting.waits)
    if not heap[0]:
        sets.discard(waiting.present, group)
    sweep(waiting.tail, jobs.last, waiting.waits, waiting.length[0])
    sweep(waiting.deadlines, jobs.deadline, waiting.waits, waiting.length[0])


@compiled
def try_all(waiting: Queue) -> None:
    """Everything is worth a try again."""
    sets.clear(waiting.blocked)
    for spot in range(1, waiting.present[0, 0] + 1):
        sets.add(waiting.untried, waiting.present[0, spot])


@compiled
def first_blocked(jobs: Columns, waiting: Queue) -> int:
    """Rank of the first job of the blocked groups; beyond all ranks if there is none."""
    rank = len(jobs.rank)
    for spot in range(1, waiting.blocked[0, 0] + 1):
        group = waiting.blocked[0, spot]
        if sets.has(waiting.present, group):
            rank = min(rank, jobs.rank[first_of(waiting, group)])
    return rank
