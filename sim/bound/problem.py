"""What every schedule of a trace decides: which jobs run on the cluster, from when, and which in the cloud.

A job that runs on the cluster from start s is delayed by s − arrival and costs nothing; one that runs in the
cloud costs what the cloud charges and is delayed at least by what its run takes longer there. The cluster is
one pool each of GPUs, CPUs and memory: nodes and jobs that are not counted are left out, which only lowers
the bill.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.spec import Spec
from sim.trace import Floats, Ints, Trace


@dataclass(frozen=True)
class BurstProblem:
    """The counted jobs; hours and GPU-hours."""

    #: Their places in the trace.
    rows: Ints
    arrival_h: Floats
    duration_h: Floats
    #: A row for each resource that may run short: GPUs, CPUs, GiB.
    demand: Floats
    #: GPU-hours charged for a run in the cloud.
    cost: Floats
    #: How much later a run in the cloud ends at least.
    extra_h: float
    #: Of each resource, what the cluster has.
    capacity: Floats

    @classmethod
    def of(cls, trace: Trace, spec: Spec) -> BurstProblem:
        """The problem of these jobs on this cluster."""
        counted = np.arange(len(trace))[counted_jobs(trace, spec)]
        per_node = np.array([spec.gpus_per_node, spec.cpus_per_node, spec.memory_gib_per_node], np.float64)
        demand = np.array([trace.gpus, trace.cpus, trace.memory_gib], np.float64)[:, counted]
        short = demand.sum(axis=1) > spec.nodes * per_node
        extra_h = spec.data_gravity_h + spec.cloud_delay_s / 3600
        return cls(
            rows=counted,
            arrival_h=trace.arrival_h[counted],
            duration_h=trace.duration_h[counted],
            demand=demand[short],
            cost=cloud_cost(trace, extra_h)[counted],
            extra_h=extra_h,
            capacity=spec.nodes * per_node[short],
        )

    def __len__(self) -> int:
        return len(self.arrival_h)


def counted_jobs(trace: Trace, spec: Spec) -> slice:
    """The jobs that count, as in `sim.outcomes.measure`."""
    return slice(spec.warmup, len(trace) - spec.warmup + 1)


def cloud_cost(trace: Trace, extra_h: float) -> Floats:
    """GPU-hours charged for each job if it runs in the cloud."""
    ran = trace.duration_h > 0
    rate = np.divide(trace.cost, trace.duration_h, out=np.zeros(len(trace)), where=ran)
    return trace.cost + rate * extra_h
