"""Starburst in front, a packed cloud behind: who leaves the cluster is packed onto rented machines.

No job comes back, and the cluster neither sees nor waits for what happens in the cloud. So to simulate the
cluster first and then, with those who left it as arrivals, the cloud is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sim.eva_replica.outcomes import PackedResult
from sim.outcomes import Outcomes
from sim.packing.inputs import Kind, PackedJob
from sim.readers.columns import trace_of
from sim.run import Run
from sim.trace import Floats, Ints, Trace
from starburst.domain.job import Task
from starburst.domain.resources import MIB_PER_GIB, MILLI, Resources

_HOUR = 3600.0
#: Row of a trace → its job in the packed cloud, as if it left on arrival.
JobOf = Callable[[int], PackedJob]


@dataclass(frozen=True, slots=True)
class Share:
    """What a job asks for per GPU where its trace does not say; without GPUs it asks for as much as with one.

    The defaults are half of what a GPU comes with on EC2's p3 (8 vCPUs, 61 GiB), less a bit of the memory, so
    that something is left to pack there.
    """

    cpus: float = 4.0
    memory_gib: float = 24.0


def counted(jobs: int, warmup: int) -> slice:
    """The rows that count, as in `sim.outcomes.measure`."""
    return slice(warmup, jobs - warmup + 1)


def leavers(outcomes: Outcomes, warmup: int) -> Ints:
    """Rows of the jobs that count and left for the cloud."""
    n = len(outcomes.in_cloud)
    return np.arange(n)[counted(n, warmup)][outcomes.in_cloud[counted(n, warmup)]]


def leaving(trace: Trace, outcomes: Outcomes, warmup: int, job_of: JobOf) -> list[PackedJob]:
    """Those jobs, when they leave for the cloud; in that order.

    Jobs of the warm-up are left out altogether: a machine's bill cannot be told apart by jobs.
    """
    left_s = (trace.arrival_h + outcomes.wait_h) * _HOUR
    rows = leavers(outcomes, warmup).tolist()
    jobs = [replace(job_of(row), arrival_s=float(left_s[row])) for row in rows]
    return sorted(jobs, key=lambda job: job.arrival_s)


def job_maker(trace: Trace, workloads: Sequence[str], most_gpus: int, share: Share) -> JobOf:
    """For a trace of a cluster: a job runs `workloads[row]`, is a gang as `Trace.tasks` splits it over nodes
    of `most_gpus`, and its CPUs and memory are split as its GPUs are. Its work is in seconds (`in_seconds`).
    """

    def make(row: int) -> PackedJob:
        name, gpus = trace.ids[row], int(trace.gpus[row])
        cpus = float(trace.cpus[row]) or share.cpus * max(gpus, 1)
        memory_gib = float(trace.memory_gib[row]) or share.memory_gib * max(gpus, 1)
        sizes = [task.gpus for task in trace.tasks(row, most_gpus)]
        parts = [size / gpus if gpus else 1 / len(sizes) for size in sizes]
        tasks = tuple(
            Task(name, rank, Resources.of(size, cpus * part, memory_gib * part), workload=workloads[row])
            for rank, (size, part) in enumerate(zip(sizes, parts, strict=True))
        )
        duration_s = float(trace.duration_h[row]) * _HOUR
        return PackedJob(name, float(trace.arrival_h[row]) * _HOUR, duration_s, tasks, round(duration_s))

    return make


def gpus_per_task(trace: Trace, most_gpus: int) -> Ints:
    """GPUs of the largest task of each job, split as in `job_maker`."""
    of_gang = -(-trace.gpus // trace.nodes)
    return np.where(trace.nodes > 1, of_gang, np.minimum(trace.gpus, most_gpus))


def in_seconds(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """Workloads whose iterations last a second each: for jobs of which only the run time is known."""
    return {name: replace(kind, pace=1.0) for name, kind in kinds.items()}


def as_trace(jobs: Sequence[PackedJob]) -> Trace:
    """Jobs with demands and workloads as a cluster sees them; a gang has a node for each task."""
    wants = [[task.resources for task in job.tasks] for job in jobs]
    return trace_of(
        [job.id for job in jobs],
        np.array([job.arrival_s for job in jobs]) / _HOUR,
        np.array([job.duration_s for job in jobs]) / _HOUR,
        np.array([sum(want.gpus for want in gang) for gang in wants], float),
        cpus=np.array([sum(want.cpu_milli for want in gang) for gang in wants]) / MILLI,
        memory_gib=np.array([sum(want.memory_mib for want in gang) for gang in wants]) / MIB_PER_GIB,
        nodes=np.array([len(gang) for gang in wants], float),
    )


@dataclass(frozen=True, slots=True)
class Both:
    """The figures of a cluster with a packed cloud behind it, over the jobs that count."""

    #: Of the cluster; what it says of the cloud is as if each job had its own.
    front: Run
    packed: PackedResult
    #: Of each job, on the cluster or from arrival to its end in the packed cloud.
    jct_h: Floats
    #: If nothing waited for the cluster and each job ran in the cloud at once and undisturbed.
    no_wait_jct_h: float

    @property
    def mean_jct_h(self) -> float:
        """Over all jobs that count."""
        return float(np.mean(self.jct_h))

    @property
    def jct_increase_percent(self) -> float:
        """By how much jobs take longer than that: waits, start-ups and slow-downs."""
        return 100 * (self.mean_jct_h / self.no_wait_jct_h - 1) if self.no_wait_jct_h else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Stable keys, as in `-o json`."""
        figures, result = self.packed.as_dict(), self.front.result
        told = {
            "cloud_cost_usd": figures.pop("cost"),
            "mean_jct_h": self.mean_jct_h,
            "no_wait_jct_h": self.no_wait_jct_h,
            "jct_increase_percent": self.jct_increase_percent,
            "mean_wait_h": result.mean_wait_h,
            "cloud_jct_h": figures.pop("mean_jct_h"),
            "cluster_utilization": result.cluster_utilization,
            "cloud_jobs": result.cloud_jobs,
            "jobs_counted": result.jobs_counted,
            "passed_jobs": result.passed_jobs,
            "engine": self.front.engine,
            "waiting_cpu_seconds": self.front.cpu_seconds,
        }
        del figures["jobs_counted"]
        return told | figures


def together(trace: Trace, front: Run, packed: PackedResult, *, warmup: int, no_wait_jct_h: float) -> Both:
    """A job in the cloud is done when the packed cloud is done with it, everything else as it was."""
    ends_s = {job.id: job.end_s for job in packed.jobs}
    end_h = front.outcomes.end_h.copy()
    rows = leavers(front.outcomes, warmup)
    end_h[rows] = [ends_s[trace.ids[row]] / _HOUR for row in rows.tolist()]
    jct_h = (end_h - trace.arrival_h)[counted(len(trace), warmup)]
    return Both(front, packed, jct_h, no_wait_jct_h)
