"""Alibaba's GPU cluster of 2023, `openb_pod_list*.csv` (ATC'23): pods of one task. Times in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.readers.published.job_table import JobTable
from sim.readers.table import number_if_known
from sim.trace import Trace
from starburst.domain.resources import MIB_PER_GIB, MILLI


def read_openb(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """A pod arrives at its creation and runs from scheduling to deletion; a GPU share becomes a whole GPU."""
    amounts = ("num_gpu", "cpu_milli", "memory_mib", "gpu_milli", "creation_time")
    times = ("scheduled_time", "deletion_time")
    table = JobTable(path, "name", dict.fromkeys(amounts, float) | dict.fromkeys(times, number_if_known))
    table.check("num_gpu", whole=True)
    table.check(*amounts[1:], *times)
    table.leave_out(~table.known(*times), "they were never scheduled or never ended")
    scheduled, deleted = table["scheduled_time"], table["deletion_time"]
    backwards = table.known(*times) & (deleted < scheduled)
    remedies = [f"must not be before scheduled_time ({start:.15g})" for start in scheduled]
    table.wrong(backwards, "deletion_time", deleted.tolist(), remedies)
    shared = (table["gpu_milli"] > 0) & (table["gpu_milli"] < MILLI)
    table.note(shared, "with a share of a GPU given a whole one")
    return table.trace(
        limit,
        submit_s=table["creation_time"],
        run_s=deleted - scheduled,
        gpus=np.where(shared, np.maximum(table["num_gpu"], 1), table["num_gpu"]),
        cpus=table["cpu_milli"] / MILLI,
        memory_gib=table["memory_mib"] / MIB_PER_GIB,
    )
