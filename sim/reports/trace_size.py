"""The size of a trace in a few figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceSize:
    """What a trace holds."""

    jobs: int
    #: First to last arrival, hours.
    span_h: float
    #: Distinct users; None if the trace tells of none.
    users: int | None
    gpu_hours: float
    #: GPUs that would be busy on average over the span if no job waited; None without a span.
    mean_gpus: float | None
    #: GPUs of the largest job.
    largest_gpus: int
    mean_run_h: float

    @classmethod
    def of(cls, trace: Trace) -> TraceSize:
        """The size of this trace."""
        span_h = float(trace.arrival_h[-1] - trace.arrival_h[0])
        gpu_hours = float(np.dot(trace.gpus, trace.duration_h))
        return cls(
            jobs=len(trace),
            span_h=span_h,
            users=None if trace.users is None else len(set(trace.users)),
            gpu_hours=gpu_hours,
            mean_gpus=gpu_hours / span_h if span_h else None,
            largest_gpus=int(trace.gpus.max()),
            mean_run_h=float(trace.duration_h.mean()),
        )
