"""What became of every job, and the sums over those that count (semantics of the published simulator)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sim.spec import Spec
from sim.trace import Bools, Floats, Ints, Trace


@dataclass(frozen=True)
class Outcomes:
    """One entry per job of the trace; hours."""

    #: Start of the run that ended the job; its end.
    start_h: Floats
    end_h: Floats
    #: Time in the queue, over both waits of a job that came home.
    wait_h: Floats
    #: Where the run that ended the job took place.
    in_cloud: Bools
    #: GPU-hours charged in the cloud, over all its stays.
    charged: Floats
    returned: Bools
    #: Started before a job that came earlier.
    passed: Bools
    #: Index of the (first) node; -1 in the cloud.
    node: Ints
    #: Begin and length of the stay in the cloud of every job that came home from it.
    stays: dict[int, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one simulation over the jobs that count; `cloud_cost` is in GPU-hours."""

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
        """Stable keys, as in `-o json`."""
        return asdict(self)


def measure(trace: Trace, outcomes: Outcomes, spec: Spec) -> Result:
    """Sums over jobs W ≤ i ≤ n − W (W = warm-up); utilisation over that window's arrivals, of all jobs.

    Percentiles are jobs' own values, not interpolated.
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
    """The figures of one queue's jobs that count."""

    queue: str
    jobs: int
    #: GPU-hours that they got on the cluster, and that were charged in the cloud.
    cluster_gpu_hours: float
    cloud_cost: float
    mean_wait_h: float
    mean_jct_h: float


def measure_queues(trace: Trace, outcomes: Outcomes, spec: Spec) -> list[QueueResult]:
    """Of each queue that the trace names, by name; none if it names no queues."""
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
    """GPU-hours inside the window on the cluster and in the cloud, over all jobs' last runs."""
    n = len(trace)
    first, last = trace.arrival_h[warmup], trace.arrival_h[n - warmup - 1]
    inside = np.minimum(outcomes.end_h, last) - np.maximum(outcomes.start_h, first)
    gpu_hours = trace.gpus * np.maximum(inside, 0.0)
    return float(np.sum(gpu_hours[~outcomes.in_cloud])), float(np.sum(gpu_hours[outcomes.in_cloud]))
