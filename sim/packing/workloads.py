"""The workload of each job of a cluster's trace: as given in the trace, else drawn at random."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import TraceTable
from sim.trace import Ints

#: Most characters read of a first line.
_PEEK = 4096


def header(path: Path) -> list[str]:
    """The cells of a file's first line, for any file."""
    with open_text(path) as text:
        return [name.strip() for name in next(csv.reader([text.readline(_PEEK)]), [])]


def is_packed(path: Path) -> bool:
    """Whether it is a trace with demands and workloads, as `sim.readers.packing.read_jobs` reads."""
    columns = header(path)
    return {"job_id", "workload", "gpu", "ram_gb"} <= {*columns} and "gpus" not in columns


def workloads_of(path: Path, ids: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Job → workload, from a CSV trace's column `workload` where it is given.

    Raises:
        SimulationError: a workload is none of `names`.
    """
    columns = header(path)
    if not {"job_id", "workload"} <= {*columns}:
        return {}
    job, workload = columns.index("job_id"), columns.index("workload")
    problems = Problems(str(path))
    found = {}
    with open_text(path) as text:
        rows = csv.reader(text)
        for row in rows:
            name = row[workload].strip() if len(row) == len(columns) else ""
            if rows.line_num == 1 or not name:
                continue
            if name not in names:
                remedy = f"is no workload; there are {', '.join(names)}"
                problems.add(rows.line_num, "workload", name, remedy)
            found[row[job]] = name
    problems.check()
    return {job: found[job] for job in ids if job in found}


def gpus_of(path: Path) -> dict[str, int]:
    """Workload → GPUs of one of its tasks, if the file of workloads has the column `gpu`.

    Raises:
        SimulationError: with file, line and column of all that is wrong.
    """
    if "gpu" not in header(path):
        return {}
    problems = Problems(str(path))
    with open_text(path) as text:
        table = TraceTable(text, problems)
        table.read("workload", {"gpu": float})
    problems.check()
    return {name.strip(): int(gpus) for name, gpus in zip(table.ids, table["gpu"], strict=True)}


def drawn(names: Sequence[str], gpus: Mapping[str, int], wanted: Ints, seed: int) -> list[str]:
    """Draw a workload for each job: among those with the most GPUs not exceeding its tasks' GPUs, uniformly.

    A job's draw depends only on the seed and its position in the trace. If no workload has so few GPUs, or
    their GPUs are unknown, all workloads are candidates.
    """
    choices = {want: _fitting(names, gpus, want) for want in np.unique(wanted).tolist()}
    luck = np.random.default_rng(seed).random(len(wanted))
    picked = zip(wanted.tolist(), luck.tolist(), strict=True)
    return [choices[want][int(at * len(choices[want]))] for want, at in picked]


def _fitting(names: Sequence[str], gpus: Mapping[str, int], want: int) -> list[str]:
    able = [name for name in names if name in gpus and gpus[name] <= want]
    most = max((gpus[name] for name in able), default=0)
    return [name for name in able if gpus[name] == most] or [*names]
