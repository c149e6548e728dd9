"""The event loop of the core and its virtual world, on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sim.array import cluster, columns, compiled, heaps, queue, sets
from sim.array.cluster import NodeArrays, give, take
from sim.array.columns import JobColumns
from sim.array.heaps import pop, prune, push
from sim.array.queue import QueueArrays, first_blocked, first_of, join, remove, try_all
from sim.trace import Bools, Floats, Ints
from starburst.policy import placement


class KernelRules(NamedTuple):
    """Parameters of the simulation."""

    placement: int
    out_of_order: bool
    #: Q_max (queue cap); the number of jobs if there is no cap.
    limit: int
    cloud_delay: float


class Runs(NamedTuple):
    """Runs of all jobs; hours."""

    start: Floats
    end: Floats
    in_cloud: Bools
    passed: Bools
    #: Heap of the jobs on the cluster, by end time.
    running: Ints


def runs(n: int) -> Runs:
    """The state before any run."""
    never = np.full((2, n), np.nan)
    return Runs(never[0], never[1], np.zeros(n, bool), np.zeros(n, bool), np.zeros(n + 1, np.int64))


class Simulation(NamedTuple):
    """The complete state of a simulation."""

    jobs: JobColumns
    nodes: NodeArrays
    waiting: QueueArrays
    out: Runs
    rules: KernelRules


@compiled.compiled
def _loop(sim: Simulation) -> None:
    """Process instants until no event is left."""
    jobs, waiting, out = sim.jobs, sim.waiting, sim.out
    n, arrived = len(jobs.arrival), 0
    _try_empty(sim)
    while True:
        now = jobs.arrival[arrived] if arrived < n else np.inf
        if out.running[0]:
            now = min(now, out.end[out.running[1]])
        prune(waiting.deadlines, jobs.deadline, waiting.waits)
        if waiting.deadlines[0]:
            now = min(now, jobs.deadline[waiting.deadlines[1]])
        if now == np.inf:
            return
        if _end(sim, now):
            try_all(waiting)
        _expire(sim, now)
        while arrived < n and jobs.arrival[arrived] == now:
            if jobs.leaves[arrived] or not sim.nodes.ever[jobs.shape[arrived]]:
                _leave(sim, arrived, now)
            else:
                join(jobs, waiting, arrived)
            arrived += 1
        _walk(sim, now)
        _trim(sim, now)
        while _expire(sim, now):
            _walk(sim, now)


@compiled.compiled
def _try_empty(sim: Simulation) -> None:
    """Record for each shape whether the empty cluster holds it."""
    for shape in range(len(sim.nodes.ever)):
        job = sim.nodes.example[shape]
        sim.nodes.ever[shape] = take(sim.rules.placement, sim.jobs, job, sim.nodes)
        if sim.nodes.ever[shape]:
            give(sim.jobs, job, sim.nodes)


@compiled.compiled
def _end(sim: Simulation, now: float) -> bool:
    """Free the resources of runs that have ended; returns whether there were any."""
    running, end = sim.out.running, sim.out.end
    grew = False
    while running[0] and end[running[1]] <= now:
        give(sim.jobs, pop(running, end), sim.nodes)
        grew = True
    return grew


@compiled.compiled
def _leave(sim: Simulation, job: int, now: float) -> None:
    """Offload a job to an instance of its own."""
    sim.out.in_cloud[job] = True
    sim.out.start[job] = now + sim.rules.cloud_delay
    sim.out.end[job] = sim.out.start[job] + sim.jobs.cloud_duration[job]


@compiled.compiled
def _expire(sim: Simulation, now: float) -> bool:
    """Offload every job whose deadline has passed; returns whether there were any."""
    deadline, due = sim.jobs.deadline, sim.waiting.deadlines
    any_due = False
    while due[0] and deadline[due[1]] <= now:
        job = pop(due, deadline)
        if sim.waiting.waits[job]:
            remove(sim.jobs, sim.waiting, job)
            _leave(sim, job, now)
            any_due = True
    return any_due


@compiled.compiled
def _trim(sim: Simulation, now: float) -> None:
    """Offload the last job while the queue is longer than Q_max."""
    while sim.waiting.length[0] > sim.rules.limit:
        job = pop(sim.waiting.tail, sim.jobs.last)
        if sim.waiting.waits[job]:
            remove(sim.jobs, sim.waiting, job)
            _leave(sim, job, now)


@compiled.compiled
def _walk(sim: Simulation, now: float) -> None:
    """Start the jobs that fit. In strict order the only group is always tried, until a job does not fit."""
    jobs, waiting, out = sim.jobs, sim.waiting, sim.out
    if not sim.rules.out_of_order:
        try_all(waiting)
    heads, head = waiting.heads, waiting.head
    for spot in range(1, waiting.untried[0, 0] + 1):
        group = waiting.untried[0, spot]
        if sets.has(waiting.present, group):
            head[group] = jobs.rank[first_of(waiting, group)]
            push(heads, head, group)
    sets.clear(waiting.untried)
    behind = first_blocked(jobs, waiting) if heads[0] else 0
    while heads[0]:
        group = pop(heads, head)
        job = first_of(waiting, group)
        if not take(sim.rules.placement, jobs, job, sim.nodes):
            sets.add(waiting.blocked, group)
            behind = min(behind, head[group])
            continue
        remove(jobs, waiting, job)
        out.passed[job] = behind < head[group]
        out.start[job] = now
        out.end[job] = now + jobs.duration[job]
        push(out.running, out.end, job)
        if sets.has(waiting.present, group):
            head[group] = jobs.rank[first_of(waiting, group)]
            push(heads, head, group)


def _entry(sources: str) -> Callable[[Simulation], None]:
    def run(sim: Simulation) -> None:
        assert sources  # part of Numba's cache key
        _loop(sim)

    return compiled.kept(run)


#: Runs all jobs to their end; fills `out` and the cluster's slots.
run = _entry(compiled.digest(m.__file__ for m in (cluster, columns, compiled, heaps, placement, queue, sets)))
