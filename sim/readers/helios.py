"""Helios `cluster_log.csv` (SenseTime, SC'21): Slurm jobs of one cluster. Local times, taken as written."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.readers.columns import by_arrival, check_ids, check_numbers, marked, note, trace_of
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import UNKNOWN, Convert, TraceTable, number_if_known, seconds, seconds_if_known
from sim.trace import Trace

COLUMNS: dict[str, Convert] = {
    "gpu_num": float,
    "cpu_num": float,
    "node_num": float,
    "submit_time": seconds,
    "start_time": seconds_if_known,
    "duration": number_if_known,
}


def read_helios(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Jobs of any final state are read; those that never started are left out."""
    problems = Problems(str(path))
    with open_text(path) as text:
        table = TraceTable(text, problems)
        table.read("job_id", COLUMNS)
    ran = (table["start_time"] != UNKNOWN) & (table["duration"] != UNKNOWN)
    check_ids(problems, table.lines, "job_id", table.ids)
    check_numbers(problems, table.lines, "gpu_num", table["gpu_num"], whole=True)
    check_numbers(problems, table.lines, "cpu_num", table["cpu_num"])
    check_numbers(problems, table.lines, "node_num", table["node_num"], lowest=1, whole=True)
    check_numbers(problems, table.lines, "duration", np.where(ran, table["duration"], 0))
    problems.check()
    trace = trace_of(
        table.ids,
        table["submit_time"] / 3600,
        table["duration"] / 3600,
        table["gpu_num"],
        cpus=table["cpu_num"],
        nodes=table["node_num"],
    )
    notes = note(marked(table.ids, ~ran), "left out, since they never started or have no duration")
    return by_arrival(trace, ran, str(path), limit), notes
