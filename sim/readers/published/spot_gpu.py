"""Alibaba's spot GPUs of 2026, `job_info_df.csv` (ASPLOS'26): jobs of several workers."""

from __future__ import annotations

from pathlib import Path

from sim.readers.published.job_table import JobTable
from sim.trace import Trace


def read_spot_gpu(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Every job; demands are those of a worker times the workers, and the user is the organization."""
    numbers = ("cpu_request", "gpu_request", "worker_num", "submit_time", "duration")
    table = JobTable(path, "job_name", dict.fromkeys(numbers, float), words=["organization"])
    table.check("cpu_request", "gpu_request", "submit_time", "duration")
    table.check("worker_num", lowest=1, whole=True)
    workers = table["worker_num"]
    return table.trace(
        limit,
        submit_s=table["submit_time"],
        run_s=table["duration"],
        gpus=table.whole_gpus(table["gpu_request"]) * workers,
        cpus=table["cpu_request"] * workers,
        users=table.words("organization"),
    )
