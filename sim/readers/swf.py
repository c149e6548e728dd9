"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job, -1 for unknown."""

from __future__ import annotations

from array import array
from math import isfinite
from pathlib import Path

import numpy as np

from sim.readers.columns import by_arrival, check_ids, check_numbers, marked, note, trace_of
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import UNKNOWN
from sim.trace import Trace

FIELDS = 18
#: Fields used, by position in the line; memory is in KiB per processor.
USED = {"submit": 1, "run": 3, "allocated": 4, "used memory": 6, "requested": 7, "requested memory": 9}
KIB_PER_GIB = 1024 * 1024


def read_swf(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Processors and memory as requested, else as allocated and used, else 0; no GPUs."""
    problems = Problems(str(path))
    ids: list[str] = []
    places = array("q")
    columns = {name: array("d") for name in USED}
    with open_text(path) as text:
        for line, content in enumerate(text, 1):
            cells = content.partition(";")[0].split()
            numbers = _numbers(cells, line, problems) if cells else None
            if numbers is not None:
                ids.append(cells[0])
                places.append(line)
                for name, place in USED.items():
                    columns[name].append(numbers[place])
    lines, fields = np.array(places, np.int64), {name: np.array(c, float) for name, c in columns.items()}
    check_ids(problems, lines, "job number", ids)
    for name, values in fields.items():
        check_numbers(problems, lines, name, np.where(values == UNKNOWN, 0, values))
    problems.check()
    cpus = np.where(fields["requested"] > 0, fields["requested"], np.maximum(fields["allocated"], 0))
    memory = np.where(fields["requested memory"] > 0, fields["requested memory"], fields["used memory"])
    ran = (fields["submit"] != UNKNOWN) & (fields["run"] != UNKNOWN) & (cpus > 0)
    trace = trace_of(
        ids,
        fields["submit"] / 3600,
        fields["run"] / 3600,
        np.zeros(len(ids)),
        cpus=cpus,
        memory_gib=np.maximum(memory, 0) * cpus / KIB_PER_GIB,
    )
    notes = note(marked(ids, ~ran), "left out, since their submission, run time or processors are unknown")
    return by_arrival(trace, ran, str(path), limit), notes


def _numbers(cells: list[str], line: int, problems: Problems) -> list[float] | None:
    if len(cells) != FIELDS:
        problems.add(line, "row", f"{len(cells)} fields", f"must be {FIELDS}")
        return None
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        numbers = []
    if not numbers or not all(map(isfinite, numbers)):
        problems.add(line, "row", " ".join(cells), "every field must be a finite number")
        return None
    return numbers
