"""Alibaba's image generation of 2026, `lora_request_trace.csv`: a request is a job of one GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.readers.published.job_table import JobTable
from sim.readers.table import seconds
from sim.trace import Trace


def read_genai(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Requests that ran to an end, failed ones too; they have no ids and are numbered from 1."""
    table = JobTable(
        path,
        "gmt_create",
        {"gmt_create": seconds, "exec_time_seconds": float},
        words=["groupId", "predict_status"],
        numbered=True,
    )
    table.check("exec_time_seconds")
    table.leave_out(table.are("predict_status", ["PENDING", "PROCESSING"]), "they had not ended")
    return table.trace(
        limit,
        submit_s=table["gmt_create"],
        run_s=table["exec_time_seconds"],
        gpus=np.ones(len(table.ids)),
        users=table.words("groupId"),
    )
