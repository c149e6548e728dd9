"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job, -1 for unknown.

A processor stands for a GPU: it is what these machines were shared by, and what a cluster is counted in here.
"""

from __future__ import annotations

import re
from array import array
from math import isfinite
from pathlib import Path

import numpy as np

from sim.readers.columns import by_arrival, check_ids, check_numbers, if_known, marked, note, trace_of
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import UNKNOWN
from sim.trace import Floats, Trace

FIELDS = 18
#: Fields used, by position in the line; memory is in KiB per processor.
USED = {
    "submit": 1,
    "run": 3,
    "allocated": 4,
    "used memory": 6,
    "requested": 7,
    "requested time": 8,
    "requested memory": 9,
    "status": 10,
    "user": 11,
}
#: Fields below 0 are unknown, as -1 is.
UNSIGNED = [name for name in USED if name not in ("status", "user", "requested time")]
CANCELLED = 5
#: Status of lines that are parts of a job, after a line of the whole job.
PARTS = (2, 3, 4)
KIB_PER_GIB = 1024 * 1024
HEADER = re.compile(r";\s*(MaxNodes|MaxProcs):\s*(\d+)")


def read_swf(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Processors and memory as requested, else as allocated and used; jobs that never ran are left out."""
    problems = Problems(str(path))
    ids: list[str] = []
    places = array("q")
    columns = {name: array("d") for name in USED}
    sizes: dict[str, int] = {}
    parts = 0
    with open_text(path, errors="replace") as text:  # comments of the archive are in Latin-1 here and there
        for line, content in enumerate(text, 1):
            if header := HEADER.match(content):
                sizes[header[1]] = int(header[2])
            cells = content.partition(";")[0].split()
            numbers = _numbers(cells, line, problems) if cells else None
            if numbers is None:
                continue
            if numbers[USED["status"]] in PARTS:
                parts += 1
                continue
            ids.append(cells[0])
            places.append(line)
            for name, place in USED.items():
                columns[name].append(numbers[place])
    lines, fields = np.array(places, np.int64), {name: np.array(c, float) for name, c in columns.items()}
    check_ids(problems, lines, "job number", ids)
    for name in UNSIGNED:
        check_numbers(problems, lines, name, np.where(fields[name] == UNKNOWN, 0, fields[name]))
    problems.check()
    return _trace(path, ids, fields, limit, _machine(sizes, parts))


def _trace(
    path: Path, ids: list[str], fields: dict[str, Floats], limit: int | None, notes: list[str]
) -> tuple[Trace, list[str]]:
    processors = np.where(fields["requested"] > 0, fields["requested"], np.maximum(fields["allocated"], 0))
    memory = np.where(fields["requested memory"] > 0, fields["requested memory"], fields["used memory"])
    cancelled = (fields["status"] == CANCELLED) & (fields["run"] <= 0)
    known = (fields["submit"] != UNKNOWN) & (fields["run"] != UNKNOWN) & (processors > 0)
    trace = trace_of(
        ids,
        fields["submit"] / 3600,
        fields["run"] / 3600,
        processors,
        memory_gib=np.maximum(memory, 0) * processors / KIB_PER_GIB,
        users=["" if user == UNKNOWN else f"{user:.0f}" for user in fields["user"].tolist()],
        estimate_h=if_known(fields["requested time"] / 3600),
    )
    notes = notes + note(marked(ids, cancelled), "left out, since they were cancelled before they started")
    unknown = note(
        marked(ids, ~known & ~cancelled),
        "left out, since their submission, run time or processors are unknown",
    )
    return by_arrival(trace, known & ~cancelled, str(path), limit), notes + unknown


def _machine(sizes: dict[str, int], parts: int) -> list[str]:
    """What the header says of the machine, in options of the simulator."""
    processors = sizes.get("MaxProcs", sizes.get("MaxNodes", 0))
    nodes = sizes.get("MaxNodes", 0)
    counted = "a processor counts as a GPU"
    if processors and nodes and not processors % nodes:
        counted += f"; the log's machine is --nodes {nodes} --gpus-per-node {processors // nodes}"
    elif processors:
        counted += f"; the log's machine had {processors} processors: nodes × GPUs per node"
    return [counted, *([f"{parts} lines of parts of jobs passed over"] if parts else [])]


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
