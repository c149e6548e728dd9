"""Checks of columns, and construction of traces from columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sim.errors import SimulationError
from sim.readers.problems import Problems, named
from sim.trace import Bools, Floats, Ints, Trace

#: CPUs of the same cost as one GPU (Starburst's W_cpu : W_gpu).
CPUS_PER_GPU = 53
#: Below this limit, sums and products of columns stay finite and integers exact.
LARGEST = 1e12


def check_numbers(
    problems: Problems, lines: Ints, field: str, values: Floats, *, lowest: int = 0, whole: bool = False
) -> None:
    """Check that numbers are in [lowest, LARGEST], and integers if `whole`; NaN was reported on reading."""
    bad = (values < lowest) | (values > LARGEST)
    if whole:
        bad |= values != np.where(np.isnan(values), values, np.floor(values))
    for row in np.flatnonzero(bad & ~np.isnan(values)):
        value = float(values[row])
        if value < lowest:
            remedy = f"must be {lowest} or more"
        else:
            remedy = "must be a whole number" if value <= LARGEST else f"must be at most {LARGEST:g}"
        problems.add(int(lines[row]), field, value, remedy)


def check_ids(problems: Problems, lines: Ints, field: str, ids: Sequence[str]) -> None:
    """Check that ids are unique and not blank."""
    if len(set(ids)) == len(ids) and all(map(str.strip, ids)):
        return
    seen: set[str] = set()
    for row, job in enumerate(ids):
        if job in seen:
            problems.add(int(lines[row]), field, job, "is used above; every job needs its own id")
        elif not job.strip():
            problems.add(int(lines[row]), field, job, "must not be empty")
        seen.add(job)


def trace_of(
    ids: list[str],
    arrival_h: Floats,
    duration_h: Floats,
    gpus: Floats,
    *,
    cpus: Floats | None = None,
    memory_gib: Floats | None = None,
    nodes: Floats | None = None,
    cost: Floats | None = None,
    users: list[str] | None = None,
    estimate_h: Floats | None = None,
) -> Trace:
    """Columns as a trace. Defaults: no CPUs, no memory, one node, a cost of (GPUs + CPUs / 53) · hours."""
    cpus = np.zeros(len(ids)) if cpus is None else cpus
    return Trace(
        ids,
        arrival_h,
        duration_h,
        gpus.astype(np.int64),
        cpus,
        np.zeros(len(ids)) if memory_gib is None else memory_gib,
        np.ones(len(ids), np.int64) if nodes is None else nodes.astype(np.int64),
        (gpus + cpus / CPUS_PER_GPU) * duration_h if cost is None else cost,
        users=users,
        estimate_h=estimate_h,
    )


def chosen(trace: Trace, rows: Ints) -> Trace:
    """The jobs in these rows."""
    return Trace(
        [trace.ids[row] for row in rows.tolist()],
        trace.arrival_h[rows],
        trace.duration_h[rows],
        trace.gpus[rows],
        trace.cpus[rows],
        trace.memory_gib[rows],
        trace.nodes[rows],
        trace.cost[rows],
        queues=trace.queues and [trace.queues[row] for row in rows.tolist()],
        users=trace.users and [trace.users[row] for row in rows.tolist()],
        estimate_h=None if trace.estimate_h is None else trace.estimate_h[rows],
        max_wait_h=None if trace.max_wait_h is None else trace.max_wait_h[rows],
        priority=None if trace.priority is None else trace.priority[rows],
        name=trace.name,
    )


def if_known(hours: Floats) -> Floats:
    """Estimates, in which UNKNOWN and 0 mean that there is none, as NaN."""
    return np.where(hours > 0, hours, np.nan)


def by_arrival(trace: Trace, keep: Bools, file: str, limit: int | None) -> Trace:
    """The first `limit` of the jobs to keep, sorted by arrival (stable); the first arrives at hour 0."""
    rows = np.flatnonzero(keep)
    if not len(rows):
        raise SimulationError(f"{file}: no jobs: there must be one that ran")
    rows = rows[np.argsort(trace.arrival_h[rows], kind="stable")][:limit]
    result = chosen(trace, rows)
    return replace(result, arrival_h=result.arrival_h - result.arrival_h[0])


def note(jobs: Sequence[str], what: str) -> list[str]:
    """A note with the number of jobs and the first few ids; empty if there are none."""
    return [f"{len(jobs)} job{'s' if len(jobs) != 1 else ''} {what}: {named(jobs)}"] if jobs else []


def marked(ids: Sequence[str], marks: Bools) -> list[str]:
    """The ids whose mark is set."""
    return [ids[int(row)] for row in np.flatnonzero(marks)]
