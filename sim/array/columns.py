"""The policies' results for all jobs, computed in advance: one column per quantity.

The functions of `starburst.policy` are applied unchanged: waiting policies and orders are plain arithmetic
and accept arrays. This is possible because their inputs do not depend on the course of the simulation (see
`learns_run_times` for the exception).
"""

from __future__ import annotations

from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np

from sim.spec import Spec
from sim.trace import Bools, Floats, Ints, Trace
from starburst.core.model.load import LoadEstimate
from starburst.core.model.settings import Settings
from starburst.core.parts.capacity import amount
from starburst.domain.job import Job
from starburst.domain.resources import Resources
from starburst.policy.ordering import ORDERS, Candidate
from starburst.policy.waiting import WAITING, Ask, Load


class JobColumns(NamedTuple):
    """Jobs, in order of arrival; hours."""

    arrival: Floats
    duration: Floats
    cloud_duration: Floats
    #: Deadline: the job then offloads.
    deadline: Floats
    #: Whether the job offloads on arrival, whatever capacity is free.
    leaves: Bools
    #: Position in the queue's order among all jobs of the trace; `last` is the reverse order.
    rank: Ints
    last: Ints
    shape: Ints
    #: Tasks of shape s: rows `task_first[s]` to `task_first[s + 1]` of `tasks` (GPUs, milli-CPUs, MiB).
    task_first: Ints
    tasks: Ints
    #: Per shape: whether each of its tasks takes a node of its own.
    spread: Bools


def learns_run_times(spec: Spec) -> bool:
    """Whether the waiting factor depends on the budget and on run times observed so far."""
    return spec.factor is None and isnan(WAITING[spec.waiting].factor(spec.budget_percent, Load(1.0, nan)))


def columns(trace: Trace, estimate_h: Floats, spec: Spec) -> JobColumns:
    """Evaluate all policies for all jobs."""
    settings = spec.settings()
    shape, shapes = _shapes(trace, spec.gpus_per_node)
    whole = [Job("", "", tasks).resources for tasks, _ in shapes]
    gpus = np.array([need.gpus for need in whole], np.int64)[shape]
    size = np.array([need.gpu_equivalents(settings.cpus_per_gpu) for need in whole], np.float64)[shape]
    wait = _waits(settings, size, gpus, estimate_h)
    if trace.max_wait_h is not None:
        wait = np.where(np.isnan(trace.max_wait_h), wait, trace.max_wait_h)
    # Computed from the due time for the same rounding as in the core.
    deadline = (trace.arrival_h + wait + estimate_h) - estimate_h
    leaves = np.zeros(len(trace), bool)
    if settings.offload_cpu_only:
        leaves |= gpus == 0
    if settings.short_job_s:
        leaves |= estimate_h < settings.short_job_s
    rank = _ranks(settings, estimate_h, deadline, 0 if trace.priority is None else trace.priority)
    return JobColumns(
        arrival=np.array(trace.arrival_h, np.float64),
        duration=np.array(trace.duration_h, np.float64),
        cloud_duration=trace.duration_h + spec.data_gravity_h,
        deadline=deadline,
        leaves=leaves,
        rank=rank,
        last=-rank,
        shape=shape,
        task_first=np.cumsum([0, *(len(tasks) for tasks, _ in shapes)]),
        tasks=np.array([amount(task) for tasks, _ in shapes for task in tasks], np.int64).reshape(-1, 3),
        spread=np.array([spread for _, spread in shapes], bool),
    )


def _shapes(trace: Trace, gpus_per_node: int) -> tuple[Ints, list[tuple[tuple[Resources, ...], bool]]]:
    """The shape index of every job; per shape, its gang and whether that is spread over distinct nodes."""
    code, first = np.zeros(len(trace), np.int64), np.zeros(min(len(trace), 1), np.int64)
    for column in (trace.gpus, trace.nodes, trace.cpus, trace.memory_gib):
        values, index = np.unique(column, return_inverse=True)
        if len(values) > 1:
            _, first, code = np.unique(code * len(values) + index, return_index=True, return_inverse=True)
    numbers: dict[tuple[tuple[Resources, ...], bool], int] = {}
    gangs = ((trace.tasks(int(i), gpus_per_node), trace.spread(int(i))) for i in first)
    number = [numbers.setdefault(gang, len(numbers)) for gang in gangs]
    return np.array(number, np.int64)[code], list(numbers)


def _waits(settings: Settings, size: Any, gpus: Any, estimate_h: Any) -> Floats:
    """Hours each job may wait; a budget's factor uses the mean size of the jobs up to this one."""
    policy, n = WAITING[settings.waiting], len(size)
    factor: Any = settings.factor
    if factor is None:
        seen: Any = (np.arange(1, n + 1), np.cumsum(size))
        load = LoadEstimate(settings.prior_size, settings.prior_runtime_s, settings.prior_jobs, *seen).load
        factor = policy.factor(settings.budget_percent, load)
    wait = np.minimum(policy.wait_s(factor, Ask(size, gpus, estimate_h)), settings.max_wait_s)
    if settings.max_slowdown is not None:
        wait = np.minimum(wait, (settings.max_slowdown - 1) * estimate_h)
    return np.broadcast_to(wait, n)


def _ranks(settings: Settings, estimate_h: Any, deadline: Any, priority: Any) -> Ints:
    """Every job's position in the queue's order; ties go to the earlier arrival."""
    n = len(deadline)
    came: Any = np.arange(n)
    key = ORDERS[settings.order](Candidate(came, estimate_h, deadline, priority))
    rank = np.empty(n, np.int64)
    rank[np.argsort(np.broadcast_to(key, n), kind="stable")] = came
    return rank
