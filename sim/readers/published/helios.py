"""Slurm logs of Shanghai AI Lab: Helios' `cluster_log.csv` (SC'21), Acme's `trace_*.csv` (NSDI'24).

Times without a zone are taken as written. Kalos, one of Acme's two clusters, gives the time from submission
to end as `duration`, so Acme's run times are those from start to end.
"""

from __future__ import annotations

from pathlib import Path

from sim.readers.published.job_table import JobTable
from sim.readers.table import Convert, number_if_known, seconds, seconds_if_known
from sim.trace import Floats, Trace

NUMBERS: dict[str, Convert] = {
    "gpu_num": float,
    "cpu_num": float,
    "node_num": float,
    "submit_time": seconds,
    "start_time": seconds_if_known,
    "duration": number_if_known,
}


def read_helios(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Jobs of any final state are read; those that never started are left out."""
    table = JobTable(path, "job_id", NUMBERS, words=["user"])
    table.leave_out(~table.known("start_time", "duration"), "they never started or have no duration")
    return _trace(table, limit, table["duration"])


def read_acme(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Jobs of any final state are read; those that never started or ended are left out."""
    table = JobTable(path, "job_id", {**NUMBERS, "end_time": seconds_if_known}, words=["user"])
    table.leave_out(~table.known("start_time", "end_time"), "they never started or never ended")
    run_s = table["end_time"] - table["start_time"]
    table.leave_out(run_s < 0, "they end before they start")
    return _trace(table, limit, run_s)


def _trace(table: JobTable, limit: int | None, run_s: Floats) -> tuple[Trace, list[str]]:
    table.check("gpu_num", whole=True)
    table.check("cpu_num")
    table.check("node_num", lowest=1, whole=True)
    table.check("duration")
    return table.trace(
        limit,
        submit_s=table["submit_time"],
        run_s=run_s,
        gpus=table["gpu_num"],
        cpus=table["cpu_num"],
        nodes=table["node_num"],
        users=table.words("user"),
    )
