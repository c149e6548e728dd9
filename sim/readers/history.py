"""Recorded jobs as a trace, with their actual arrivals and run times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from sim.readers.columns import by_arrival, check_ids, check_numbers, chosen, trace_of
from sim.readers.problems import Problems
from sim.spec import Spec
from sim.trace import Trace

#: id, submitted (s), run time (s), GPUs, CPUs, memory (GiB), queue
Record = tuple[str, float, float, int, float, float, str]


def from_records(rows: Iterable[Record]) -> Trace:
    """A trace of jobs in any order; submissions in Unix seconds, counted from the first one."""
    records = list(rows)
    problems = Problems("history", "{file}: job {line}")
    lines = np.arange(1, len(records) + 1)
    ids = [record[0] for record in records]
    numbers = np.array([record[1:6] for record in records], float).reshape(-1, 5).T
    check_ids(problems, lines, "id", ids)
    for name, values in zip(("submitted", "run time", "GPUs", "CPUs", "memory"), numbers, strict=True):
        for row in np.flatnonzero(~np.isfinite(values)):
            problems.add(int(lines[row]), name, float(values[row]), "must be a finite number")
        finite = np.where(np.isfinite(values), values, 0)
        check_numbers(problems, lines, name, finite, whole=name == "GPUs")
    problems.check()
    submitted_s, runtime_s, gpus, cpus, memory_gib = numbers
    trace = trace_of(ids, submitted_s / 3600, runtime_s / 3600, gpus, cpus=cpus, memory_gib=memory_gib)
    trace = replace(trace, queues=[record[6] for record in records])
    return by_arrival(trace, np.ones(len(ids), bool), "history", None)


def spread(trace: Trace, spec: Spec) -> tuple[Trace, int]:
    """The jobs on the fewest nodes that hold them, and the number of jobs too large for the cluster.

    The store records only a job's total resources. A job that exceeds a node is treated as a gang; jobs too
    large for the cluster are left out.
    """
    demands = (
        (trace.gpus, spec.gpus_per_node),
        (trace.cpus, spec.cpus_per_node),
        (trace.memory_gib, spec.memory_gib_per_node),
    )
    nodes = np.ones(len(trace))
    for demand, most in demands:
        whole = np.ceil(demand / most - 1e-9) if most else np.where(demand > 0, np.inf, 1)
        nodes = np.maximum(nodes, whole)
    kept = np.flatnonzero(nodes <= spec.nodes)
    jobs = replace(chosen(trace, kept), nodes=nodes[kept].astype(np.int64))
    return jobs, len(trace) - len(kept)
