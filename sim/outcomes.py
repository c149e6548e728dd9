"""Outcome of every job, and statistics over the counted jobs (semantics of the published simulator)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sim.spec import Spec
from sim.trace import Bools, Floats, Ints, Trace


@dataclass(frozen=True)
class Outcomes:
    """One entry per job of the trace; hours."""

    #: Start and end of the job's last run.
    start_h: Floats
    end_h: Floats
    #: Time in the queue, including the second wait of a returned job.
    wait_h: Floats
    #: Whether the job's last run was in the cloud.
    in_cloud: Bools
    #: GPU-hours charged in the cloud, over all cloud stays of the job.
    charged: Floats
    returned: Bools
    #: Started out of order, before a job that arrived earlier.
    passed: Bools
    #: Index of the (first) node; -1 in the cloud.
    node: Ints
    #: Start and length of the cloud stay of each returned job.
    stays: dict[int, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """Statistics of one simulation over the counted jobs; `cloud_cost` is in GPU-hours."""

    cloud_cost: float
    cloud_cost_usd: float
    mean_jct_h: float
    mean_wait_h: float
    p90_jct_h: float
    p99_jct_h: float
    cluster_utilization: float
    system_utilization: float
    cloud_jobs: int
    jobs_counted: int
    returned_jobs: int
    passed_jobs: int

    def as_dict(self) -> dict[str, Any]:
        """All statistics under stable keys, as in `-o json`."""
        return asdict(self)


def measure(trace: Trace, outcomes: Outcomes, spec: Spec) -> Result:
    """Statistics over jobs W ≤ i ≤ n − W (W = warm-up); utilisation over their arrival window, of all jobs.

    Percentiles are values of single jobs, not interpolated.
    """
    n, warmup = len(trace), spec.warmup
    counted = slice(warmup, n - warmup + 1)
    jct_h = (outcomes.end_h - trace.arrival_h)[counted]
    local, cloud = _gpu_hours(trace, outcomes, warmup)
    first, last = trace.arrival_h[warmup], trace.arrival_h[n - warmup - 1]
    capacity = spec.nodes * spec.gpus_per_node * (last - first)
    charged = float(np.sum(outcomes.charged[counted]))
    return Result(
        cloud_cost=charged,
        cloud_cost_usd=charged * spec.price_per_gpu_hour,
        mean_jct_h=float(np.mean(jct_h)),
        mean_wait_h=float(np.mean(outcomes.wait_h[counted])),
        p90_jct_h=float(np.percentile(jct_h, 90, method="lower")),
        p99_jct_h=float(np.percentile(jct_h, 99, method="lower")),
        cluster_utilization=float(local / capacity) if capacity else 0.0,
        system_utilization=float((local + cloud) / capacity) if capacity else 0.0,
        cloud_jobs=int(np.sum(outcomes.in_cloud[counted])),
        jobs_counted=len(jct_h),
        returned_jobs=int(np.sum(outcomes.returned[counted])),
        passed_jobs=int(np.sum(outcomes.passed[counted])),
    )


@dataclass(frozen=True, slots=True)
class QueueResult:
    """Statistics of one queue's counted jobs."""

    queue: str
    jobs: int
    #: GPU-hours used on the cluster, and charged in the cloud.
    cluster_gpu_hours: float
    cloud_cost: float
    mean_wait_h: float
    mean_jct_h: float


def measure_queues(trace: Trace, outcomes: Outcomes, spec: Spec) -> list[QueueResult]:
    """Statistics per queue, sorted by name; empty if the trace names no queues."""
    last = len(trace) - spec.warmup + 1
    names = np.array(trace.queues or [])[spec.warmup : last]
    rows = slice(spec.warmup, last)
    run_h = np.where(outcomes.in_cloud, 0.0, outcomes.end_h - outcomes.start_h)[rows] * trace.gpus[rows]
    jct_h = (outcomes.end_h - trace.arrival_h)[rows]
    return [
        QueueResult(
            queue=str(name),
            jobs=int(mine.sum()),
            cluster_gpu_hours=float(run_h[mine].sum()),
            cloud_cost=float(outcomes.charged[rows][mine].sum()),
            mean_wait_h=float(outcomes.wait_h[rows][mine].mean()),
            mean_jct_h=float(jct_h[mine].mean()),
        )
        for name in np.unique(names)
        for mine in [names == name]
    ]


def _gpu_hours(trace: Trace, outcomes: Outcomes, warmup: int) -> tuple[float, float]:
    """GPU-hours within the window on the cluster and in the cloud, over the last runs of all jobs."""
    n = len(trace)
    first, last = trace.arrival_h[warmup], trace.arrival_h[n - warmup - 1]
    inside = np.minimum(outcomes.end_h, last) - np.maximum(outcomes.start_h, first)
    gpu_hours = trace.gpus * np.maximum(inside, 0.0)
    return float(np.sum(gpu_hours[~outcomes.in_cloud])), float(np.sum(gpu_hours[outcomes.in_cloud]))
