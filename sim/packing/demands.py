"""Jobs of a cluster's trace as jobs of the packed cloud: tasks, demands and workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.packing.inputs import Kind, PackedJob
from sim.readers.columns import trace_of
from sim.trace import Ints, Trace
from starburst.domain.job import Task
from starburst.domain.resources import MIB_PER_GIB, MILLI, Resources

_HOUR = 3600.0
#: Row of a trace → its job in the packed cloud, as if it offloaded on arrival.
JobOf = Callable[[int], PackedJob]


@dataclass(frozen=True, slots=True)
class Share:
    """Demand per GPU where the trace gives none; a job without GPUs requests as much as for one GPU.

    The defaults are half of the amounts per GPU of EC2's p3 (8 vCPUs, 61 GiB), with slightly less memory, so
    that tasks can share instances there.
    """

    cpus: float = 4.0
    memory_gib: float = 24.0


def job_maker(trace: Trace, workloads: Sequence[str], most_gpus: int, share: Share) -> JobOf:
    """Jobs of a cluster's trace: workload `workloads[row]`, and tasks as in `Trace.tasks`.

    Nodes have `most_gpus` GPUs; CPUs and memory are divided in proportion to GPUs. Work is in seconds
    (`in_seconds`).
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
    """Workloads with one iteration per second, for jobs of which only the run time is known."""
    return {name: replace(kind, pace=1.0) for name, kind in kinds.items()}


def as_trace(jobs: Sequence[PackedJob]) -> Trace:
    """Packed jobs as a trace for the cluster; a gang has a node for each task."""
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
