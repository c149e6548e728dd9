"""Recorded jobs as a trace, with their actual arrivals and run times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from sim.readers.columns import by_arrival, check_ids, check_numbers, if_known, trace_of
from sim.readers.problems import Problems
from sim.trace import Trace

#: id, submitted (s), run time (s), GPUs, CPUs, memory (GiB), queue, user, estimate of the run time (s)
Record = tuple[str, float, float, int, float, float, str, str, float | None]


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
    trace = replace(
        trace,
        queues=[record[6] for record in records],
        users=[record[7] for record in records],
        estimate_h=if_known(np.array([record[8] or 0.0 for record in records]) / 3600),
    )
    return by_arrival(trace, np.ones(len(ids), bool), "history", None)
