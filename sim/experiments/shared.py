"""What several experiments share: the traces they run on, their clusters, and tables."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from sim.spec import Spec
from sim.trace import Floats, Ints, Trace

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("STARBURST_SHARED") or ROOT.parent / "shared")
RESULTS = ROOT / "docs" / "results"
#: Compute-Wait out of order on 4 nodes of 8 GPUs, as the small published cases have it.
SMALL = Spec(nodes=4, cpus_per_node=48, binpack="best-fit", out_of_order=True)
PHILLY = Spec(nodes=64, binpack="first-fit", out_of_order=True, warmup=5000)


def shared_trace(path: str) -> Trace | None:
    """A trace of the shared folder; None, and a line that says so, where it is not at hand."""
    file = SHARED / "cases" / path
    if not file.is_file():
        print(f"{file.name} is left out: set STARBURST_SHARED to the folder that has cases/{path}")
        return None
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    gpus = np.array([int(row["gpus"]) for row in rows])
    duration_h = _hours(rows, "duration")
    cpus = np.array([float(row.get("cpus", 0)) for row in rows])
    nodes = np.array([int(row.get("nodes", 1)) for row in rows])
    cost = np.array([float(row["cost"]) for row in rows]) if "cost" in rows[0] else gpus * duration_h
    ids = [row["job_id"] for row in rows]
    return Trace(ids, _hours(rows, "arrival"), duration_h, gpus, cpus, np.zeros(len(rows)), nodes, cost)


def _hours(rows: Sequence[dict[str, str]], column: str) -> Floats:
    unit, per_hour = ("_h", 1.0) if f"{column}_h" in rows[0] else ("_s", 3600.0)
    return np.array([float(row[column + unit]) / per_hour for row in rows])


def doubling(seed: int, jobs: int = 12_000) -> Trace:
    """Poisson arrivals of heavy-tailed jobs for 32 GPUs: load .75 at first, 1.5 from the middle on."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8], size=jobs, p=[0.7, 0.1, 0.15, 0.05])
    duration_h = rng.lognormal(-1.1, 1.2, jobs)
    gap_h = rng.exponential(float(np.mean(gpus * duration_h)) / (32 * 0.75), jobs)
    gap_h[jobs // 2 :] /= 2
    return gpu_jobs(np.cumsum(gap_h), duration_h, gpus)


def gpu_jobs(arrival_h: Floats, duration_h: Floats, gpus: Ints) -> Trace:
    """Jobs that ask for GPUs of one node only, and cost what their GPU-hours do."""
    none, one = np.zeros(len(gpus)), np.ones(len(gpus), np.int64)
    ids = [str(number) for number in range(len(gpus))]
    return Trace(ids, arrival_h, duration_h, gpus, none, none, one, gpus * duration_h)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
