"""The waiting jobs: one heap per group; a pass considers only the first job of each group.

Out of order a group is a shape, as in the core: jobs of one shape fit or fail together. In strict order all
jobs form one group. Removal is lazy; a heap in which removed jobs outnumber the others is swept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.array import sets
from sim.array.columns import JobColumns
from sim.array.compiled import compiled
from sim.array.heaps import prune, push, sweep
from sim.trace import Bools, Ints


class QueueArrays(NamedTuple):
    """Waiting jobs by index in the trace."""

    waits: Bools
    #: Number of waiting jobs (one entry).
    length: Ints
    group: Ints
    #: The heap of group g is at `heap_first[g]` to `heap_first[g + 1]`.
    heaps: Ints
    heap_first: Ints
    #: All waiting jobs by deadline, and in reverse order.
    deadlines: Ints
    tail: Ints
    #: Sets of groups: with a waiting job; blocked until capacity grows, because the first job did not fit; to
    #: be tried.
    present: Ints
    blocked: Ints
    untried: Ints
    #: During one pass: rank of the first job per group, and a heap of groups by it.
    head: Ints
    heads: Ints


def queue(jobs: JobColumns, out_of_order: bool) -> QueueArrays:
    """The empty queue."""
    n, groups = len(jobs.arrival), len(jobs.task_first) - 1 if out_of_order else 1
    group = jobs.shape if out_of_order else np.zeros(n, np.int64)
    heap_sizes = 1 + np.bincount(group, minlength=groups)
    return QueueArrays(
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
def _heap(waiting: QueueArrays, group: int) -> Ints:
    return waiting.heaps[waiting.heap_first[group] : waiting.heap_first[group + 1]]


@compiled
def first_of(waiting: QueueArrays, group: int) -> int:
    """The first job of a non-empty group."""
    return int(waiting.heaps[waiting.heap_first[group] + 1])


@compiled
def join(jobs: JobColumns, waiting: QueueArrays, job: int) -> None:
    """Add a job to the queue."""
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
def remove(jobs: JobColumns, waiting: QueueArrays, job: int) -> None:
    """Remove a job from the queue."""
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
def try_all(waiting: QueueArrays) -> None:
    """Unblock all groups and mark those with waiting jobs to be tried."""
    sets.clear(waiting.blocked)
    for spot in range(1, waiting.present[0, 0] + 1):
        sets.add(waiting.untried, waiting.present[0, spot])


@compiled
def first_blocked(jobs: JobColumns, waiting: QueueArrays) -> int:
    """Least rank of the first jobs of blocked groups; beyond all ranks if there is none."""
    rank = len(jobs.rank)
    for spot in range(1, waiting.blocked[0, 0] + 1):
        group = waiting.blocked[0, spot]
        if sets.has(waiting.present, group):
            rank = min(rank, jobs.rank[first_of(waiting, group)])
    return rank
