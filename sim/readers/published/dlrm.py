"""Alibaba's disaggregated recommendation models of 2025, `disaggregated_DLRM_trace.csv` (NSDI'25)."""

from __future__ import annotations

from pathlib import Path

from sim.readers.published.job_table import JobTable
from sim.readers.table import number_if_known
from sim.trace import Trace

#: Why instances of a role are no jobs where those of the other are read.
ELSEWHERE = {
    "HN": "their role is not HN: they run on no GPU node",
    "CN": "their role is not CN: they run on no CPU node",
}


def read_dlrm(path: Path, limit: int | None, role: str = "HN") -> tuple[Trace, list[str]]:
    """Instances of GPU nodes (role HN) that began and ended within the trace; their user is the application.

    An instance arrives at its creation and runs from scheduling to deletion. Those of CPU nodes (CN) run on
    machines of their own, beside the GPU cluster, and are read if that `role` is asked for.
    """
    amounts = ("cpu_request", "gpu_request", "memory_request")
    times = ("creation_time", "scheduled_time", "deletion_time")
    table = JobTable(
        path,
        "instance_sn",
        dict.fromkeys(amounts, float) | dict.fromkeys(times, number_if_known),
        words=["role", "app_name"],
    )
    table.check(*amounts, *times)
    table.leave_out(~table.are("role", [role]), ELSEWHERE[role])
    table.leave_out(~table.known(*times), "they began before the trace or ended after it")
    run_s = table["deletion_time"] - table["scheduled_time"]
    table.leave_out(run_s < 0, "they end before they start")
    return table.trace(
        limit,
        submit_s=table["creation_time"],
        run_s=run_s,
        gpus=table.whole_gpus(table["gpu_request"]),
        cpus=table["cpu_request"],
        memory_gib=table["memory_request"],
        users=table.words("app_name"),
    )
