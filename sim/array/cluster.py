"""Free resources of every node and placement of gangs, with the core's rules and the policy's own scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.array.columns import JobColumns
from sim.array.compiled import compiled
from sim.spec import Spec
from sim.trace import Bools, Ints
from starburst.core.parts.capacity import amount
from starburst.policy import placement as policy
from starburst.policy.placement import Amount

first_fit = compiled(policy.first_fit)
best_fit = compiled(policy.best_fit)
worst_fit = compiled(policy.worst_fit)
tetris = compiled(policy.tetris)

#: Numba caches no code that takes a function as argument, so placements are passed as integers.
FIRST_FIT, BEST_FIT, WORST_FIT, TETRIS = range(4)
CODES = {"first-fit": FIRST_FIT, "best-fit": BEST_FIT, "worst-fit": WORST_FIT, "tetris": TETRIS}


class NodeArrays(NamedTuple):
    """Nodes by index; amounts are rows of GPUs, milli-CPUs and MiB."""

    capacity: Ints
    free: Ints
    #: Nodes of the tasks of job j, in order, from entry `slot_first[j]` on.
    slots: Ints
    slot_first: Ints
    #: Per shape: the index of one job of it, and whether the empty cluster holds it.
    example: Ints
    ever: Bools


def cluster(spec: Spec, jobs: JobColumns) -> NodeArrays:
    """The cluster with all nodes empty."""
    capacity = np.array([amount(node.capacity) for node in spec.cluster()], np.int64).reshape(-1, 3)
    width = np.diff(jobs.task_first)[jobs.shape]
    slot_first = np.cumsum(width) - width
    slots = np.zeros(int(np.sum(width)), np.int64)
    example = np.unique(jobs.shape, return_index=True)[1]
    return NodeArrays(capacity, capacity.copy(), slots, slot_first, example, np.zeros(len(example), bool))


@compiled
def _better(placement: int, demand: Amount, free: Amount, size: Amount, than: tuple[Amount, Amount]) -> bool:
    """Whether the placement prefers a node with this free amount and capacity to the one of `than`."""
    if placement == FIRST_FIT:
        return bool(first_fit(free, size, demand) < first_fit(than[0], than[1], demand))
    if placement == BEST_FIT:
        return bool(best_fit(free, size, demand) < best_fit(than[0], than[1], demand))
    if placement == WORST_FIT:
        return bool(worst_fit(free, size, demand) < worst_fit(than[0], than[1], demand))
    return bool(tetris(free, size, demand) < tetris(than[0], than[1], demand))


@compiled
def _row(amounts: Ints, row: int) -> Amount:
    return (amounts[row, 0], amounts[row, 1], amounts[row, 2])


@compiled
def _is_among(node: int, others: Ints) -> bool:
    for other in others:  # noqa: SIM110 - compiled
        if other == node:
            return True
    return False


@compiled
def _best(placement: int, demand: Amount, nodes: NodeArrays, besides: Ints) -> int:
    """The node for one task, none of `besides`; or -1."""
    best, than = -1, (demand, demand)
    for node in range(len(nodes.free)):
        free = _row(nodes.free, node)
        if demand[0] > free[0] or demand[1] > free[1] or demand[2] > free[2]:
            continue
        if len(besides) and _is_among(node, besides):
            continue
        size = _row(nodes.capacity, node)
        if best < 0 or _better(placement, demand, free, size, than):
            best, than = node, (free, size)
    return best


@compiled
def take(placement: int, jobs: JobColumns, job: int, nodes: NodeArrays) -> bool:
    """Place a job's tasks in turn, all or none; returns whether they were placed."""
    first = jobs.task_first[jobs.shape[job]]
    count = jobs.task_first[jobs.shape[job] + 1] - first
    slots = nodes.slots[nodes.slot_first[job] : nodes.slot_first[job] + count]
    spread = jobs.spread[jobs.shape[job]]
    for rank in range(count):
        demand = _row(jobs.tasks, first + rank)
        node = _best(placement, demand, nodes, slots[:rank] if spread else slots[:0])
        if node < 0:
            _give(jobs, first, slots[:rank], nodes)
            return False
        slots[rank] = node
        for kind in range(3):
            nodes.free[node, kind] -= demand[kind]
    return True


@compiled
def give(jobs: JobColumns, job: int, nodes: NodeArrays) -> None:
    """Free a job's resources."""
    first = jobs.task_first[jobs.shape[job]]
    count = jobs.task_first[jobs.shape[job] + 1] - first
    _give(jobs, first, nodes.slots[nodes.slot_first[job] : nodes.slot_first[job] + count], nodes)


@compiled
def _give(jobs: JobColumns, first: int, slots: Ints, nodes: NodeArrays) -> None:
    for rank in range(len(slots)):
        for kind in range(3):
            nodes.free[slots[rank], kind] += jobs.tasks[first + rank, kind]
