"""One simulation of a trace: run-time estimates, choice of the engine, statistics and resource use."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np

from sim.compiled import build
from sim.engines import compiled_engine, core_engine
from sim.errors import SimulationError
from sim.outcomes import Outcomes, QueueResult, Result, measure, measure_queues
from sim.slowdowns import Slowdowns, slowdowns
from sim.spec import Spec
from sim.trace import Floats, Trace

ENGINES = ("auto", "core", "array", "compiled")


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """Results and resource use of one simulation."""

    outcomes: Outcomes
    result: Result
    queues: list[QueueResult]
    slowdowns: Slowdowns
    engine: str
    cpu_seconds: float
    #: Largest resident set of the process so far, MiB.
    max_rss_mb: float

    def as_dict(self, spec: Spec) -> dict[str, Any]:
        """Stable keys, as in `-o json`; infinity becomes null."""
        jobs = len(self.outcomes.start_h)
        return {
            **self.result.as_dict(),
            **self.slowdowns.as_dict(),
            "queues": [asdict(queue) for queue in self.queues],
            "engine": self.engine,
            "cpu_seconds": self.cpu_seconds,
            "jobs_per_cpu_second": jobs / self.cpu_seconds if self.cpu_seconds else None,
            "max_rss_mb": self.max_rss_mb,
            "seed": spec.seed,
            "spec": spec.as_dict(),
        }


def run(trace: Trace, spec: Spec, engine: str = "auto") -> SimulationRun:
    """Simulate the trace, unless an engine is named by the fastest that can and is at hand.

    Raises:
        SimulationError: the spec cannot be simulated, or not by this engine, or no job is counted.
    """
    spec.check()
    _check_warmup(spec, len(trace))
    _check_shares(spec, trace)
    estimate_h = estimates(trace, spec)
    name, simulate = chosen(engine, trace, estimate_h, spec)
    began = cpu_s()
    outcomes = simulate(trace, estimate_h, spec)
    cpu_seconds = cpu_s() - began
    return SimulationRun(
        outcomes,
        measure(trace, outcomes, spec),
        measure_queues(trace, outcomes, spec),
        slowdowns(trace, outcomes, spec),
        name,
        cpu_seconds,
        max_rss_mb(),
    )


def estimates(trace: Trace, spec: Spec) -> Floats:
    """Run times that the scheduler is told, never negative; NaN where a job has no estimate.

    Right ones are off by up to `estimate_error` percent.

    Raises:
        SimulationError: the trace does not tell what users have estimated.
    """
    told = spec.runtime_estimates
    if told in ("given", "limits") and trace.estimate_h is None:
        raise SimulationError(
            f"--runtime-estimates: {told}: the trace has no estimates of its users; write right or none"
        )
    if told in ("limits", "none"):
        return np.full(len(trace), np.nan)
    if told == "given" and trace.estimate_h is not None:
        return trace.estimate_h
    if not spec.estimate_error:
        return trace.duration_h
    most = spec.estimate_error / 100
    errors = np.random.default_rng(spec.seed).uniform(-most, most, len(trace))
    return np.maximum(trace.duration_h * (1 + errors), 0.0)


def chosen(
    asked: str, trace: Trace, estimate_h: Floats, spec: Spec
) -> tuple[str, Callable[[Trace, Floats, Spec], Outcomes]]:
    """The engine asked for, or for "auto" the fastest that can and is at hand: its name and its `simulate`.

    Raises:
        SimulationError: there is no such engine, or it cannot.
    """
    if asked not in ENGINES:
        raise SimulationError(f"--engine: {asked!r}: choose one of {', '.join(ENGINES)}")
    if asked in ("core", "compiled"):
        return asked, core_engine.simulate if asked == "core" else compiled_engine.simulate
    why_not, simulate = _array_engine(trace, estimate_h, spec)
    if not why_not:
        return "array", simulate
    if asked == "array":
        raise SimulationError(f"--engine: array: {why_not.rstrip('.')}; choose core or auto")
    if len(estimate_h) >= compiled_engine.FEWEST_JOBS and build.ready() is not None:
        return "compiled", compiled_engine.simulate
    return "core", core_engine.simulate


def _array_engine(
    trace: Trace, estimate_h: Floats, spec: Spec
) -> tuple[str, Callable[[Trace, Floats, Spec], Outcomes]]:
    """Why the array engine cannot simulate this spec ("" if it can), and its `simulate`."""
    try:
        arrays = import_module("sim.engines.array_engine")
    except ImportError:
        return "needs numba: pip install starburst-hybrid[fast]", core_engine.simulate
    return arrays.why_not(spec, trace, estimate_h), arrays.simulate


def _check_warmup(spec: Spec, jobs: int) -> None:
    if not jobs:
        raise SimulationError("the trace has no jobs")
    if 2 * spec.warmup >= jobs:
        raise SimulationError(
            f"--warmup: {spec.warmup}: off both ends leaves none of the trace's {jobs} jobs to count; "
            f"must be below {(jobs + 1) // 2}"
        )


def _check_shares(spec: Spec, trace: Trace) -> None:
    known = sorted(set(trace.queues or ()))
    for name, _ in spec.shares:
        if name not in known:
            queues = f"has the queues {', '.join(known)}" if known else "names no queues"
            raise SimulationError(f"--share: {name!r}: no job is in it; the trace {queues}")


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return time.process_time() + sum(os.times()[2:4])


def max_rss_mb() -> float:
    """Largest resident set so far of this process, or of a child of it that has ended, MiB."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak / 1024 / (1024 if sys.platform == "darwin" else 1)
