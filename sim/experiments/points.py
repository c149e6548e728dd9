"""What a run costs at which delay, and what a policy's curve of many runs says of any delay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.engines import array_engine, core_engine
from sim.outcomes import Outcomes
from sim.spec import Spec
from sim.trace import Floats, Trace

#: Increases of mean JCT, percent, in rising order, and the costs of cloud GPU-hours there.
Curve = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Point:
    """One run: realised increase of mean JCT over No-Wait, percent, and cloud cost, GPU-hours."""

    increase: float
    cost: float
    #: The increase of the first and of the second half of the jobs that count.
    first: float
    second: float


def point(trace: Trace, spec: Spec) -> Point:
    """Run it, by the faster engine that can."""
    simulate = core_engine.simulate if array_engine.why_not(spec) else array_engine.simulate
    return point_of(trace, spec, simulate(trace, trace.duration_h, spec))


def point_of(trace: Trace, spec: Spec, outcomes: Outcomes) -> Point:
    """Measure it. Under No-Wait a job takes its run time, so the increase needs no second run."""
    delay_h = outcomes.end_h - trace.arrival_h - trace.duration_h
    last = len(trace) - spec.warmup + 1
    middle = (spec.warmup + last) // 2

    def increase(jobs: slice) -> float:
        return float(100 * delay_h[jobs].sum() / trace.duration_h[jobs].sum())

    counted = slice(spec.warmup, last)
    halves = increase(slice(spec.warmup, middle)), increase(slice(middle, last))
    return Point(increase(counted), float(outcomes.charged[counted].sum()), *halves)


def jagged(points: list[Point]) -> Curve:
    """The curve as it is."""
    ordered = sorted((p.increase, p.cost) for p in points)
    return np.array([increase for increase, _ in ordered]), np.array([cost for _, cost in ordered])


def falling(points: list[Point]) -> Curve:
    """The falling curve nearest to the points in squares of cost (isotonic regression, pool adjacent)."""
    increases, costs = jagged(points)
    pools: list[tuple[float, int]] = []
    for cost in costs:
        pools.append((float(cost), 1))
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    return increases, np.repeat([cost for cost, _ in pools], [n for _, n in pools])


def cost_at(curve: Curve, increase: float) -> float:
    """Cost at an increase, between the two points beside it."""
    return float(np.interp(increase, *curve))
