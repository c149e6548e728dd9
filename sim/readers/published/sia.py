"""Workloads of Pollux (OSDI'21) and Sia (SOSP'23), `workload-*.csv`: submissions of known applications.

The files have no run times. GPU_HOURS are what the measurements beside them come to for a T4, the GPU of
Sia's `aws` files: iterations to the target metric (`validation-*.csv`) times seconds of a step
(`placements-aws.csv`) at the requested replicas and batch size, averaged over all submissions of the
application in Sia's workloads; of `ncf`, which these no longer have, at Pollux' replicas and batch size.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.readers.published.job_table import JobTable
from sim.trace import Trace

GPU_HOURS = {"ncf": 0.01, "cifar10": 1.75, "bert": 7.6, "deepspeech2": 7.7, "yolov3": 17.3, "imagenet": 195.0}


def read_sia(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """A replica is a GPU; the run time is the application's GPU-hours over the replicas."""
    table = JobTable(path, "name", {"time": float, "num_replicas": float}, words=["application"])
    table.check("time")
    table.check("num_replicas", lowest=1, whole=True)
    applications = table.words("application")
    remedy = f"has no known run time; known are {', '.join(GPU_HOURS)}"
    unknown = ~table.are("application", list(GPU_HOURS))
    table.wrong(unknown, "application", applications, [remedy] * len(applications))
    table.note(~unknown, "with the run time of their application measured on a T4, as the file has none")
    gpus = np.maximum(table["num_replicas"], 1)
    hours = np.array([GPU_HOURS.get(name, 0.0) for name in applications])
    return table.trace(limit, submit_s=table["time"], run_s=hours * 3600 / gpus, gpus=gpus)
