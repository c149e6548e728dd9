"""Alibaba's GPU trace of 2023, `openb_pod_list*.csv` (ATC'23): pods of one task. Times in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.readers.columns import by_arrival, check_ids, check_numbers, marked, note, trace_of
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import UNKNOWN, TraceTable, number_if_known
from sim.trace import Trace
from starburst.domain.resources import MIB_PER_GIB, MILLI

_WHOLE = ("num_gpu",)
_AMOUNTS = ("cpu_milli", "memory_mib", "gpu_milli", "creation_time")
_MAYBE = ("scheduled_time", "deletion_time")


def read_alibaba(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """A pod arrives at its creation and runs from scheduling to deletion; a GPU share becomes a whole GPU."""
    problems = Problems(str(path))
    with open_text(path) as text:
        table = TraceTable(text, problems)
        table.read(
            "name", dict.fromkeys((*_WHOLE, *_AMOUNTS), float) | dict.fromkeys(_MAYBE, number_if_known)
        )
    check_ids(problems, table.lines, "name", table.ids)
    for name in (*_WHOLE, *_AMOUNTS):
        check_numbers(problems, table.lines, name, table[name], whole=name in _WHOLE)
    for name in _MAYBE:
        check_numbers(problems, table.lines, name, np.where(table[name] == UNKNOWN, 0, table[name]))
    scheduled, deleted = table["scheduled_time"], table["deletion_time"]
    never = (scheduled == UNKNOWN) | (deleted == UNKNOWN)
    for row in np.flatnonzero(~never & (deleted < scheduled)):
        remedy = f"must not be before scheduled_time ({scheduled[row]:.15g})"
        problems.add(int(table.lines[row]), "deletion_time", float(deleted[row]), remedy)
    problems.check()
    shared = (table["gpu_milli"] > 0) & (table["gpu_milli"] < MILLI)
    trace = trace_of(
        table.ids,
        table["creation_time"] / 3600,
        (deleted - scheduled) / 3600,
        np.where(shared, np.maximum(table["num_gpu"], 1), table["num_gpu"]),
        cpus=table["cpu_milli"] / MILLI,
        memory_gib=table["memory_mib"] / MIB_PER_GIB,
    )
    notes = note(marked(table.ids, never), "left out, since they were never scheduled or never ended")
    notes += note(marked(table.ids, shared & ~never), "with a share of a GPU given a whole one")
    return by_arrival(trace, ~never, str(path), limit), notes
