"""What P ± 2 costs where the end of the log is not known: docs/results/held-out.md.

A rule that does not know the end has to hold P wherever it could be. Open loop knows both here: its factor is
chosen in hindsight, once for the whole log, and anew for each thousand jobs, so that a log that ended there
would have held P.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sim.experiments.shared import table
from sim.experiments.waiting.held_out import CASES, PERCENTS, HeldOutCase, HeldOutRun, simulated
from sim.experiments.waiting.held_out_report import TOLERANCE
from sim.trace import Floats, Trace

COMMAND = "python -m sim.experiments.waiting.anytime NAMES"
#: Jobs between two ends that could be.
STEP = 1000
#: Factors: GPUs times run time times the factor is the longest wait. The largest lets every job wait.
LEAST, MOST, HALVINGS = 1e-5, 1e5, 16
GRID = (0.0, *np.geomspace(1e-4, 1e3, 40).tolist(), MOST)
HEAD = (
    "run",
    "P",
    "one factor: off P by up to",
    "a factor per thousand: changed",
    "against one factor",
    "p99",
    "one factor's p99 there",
)


class OpenLoop:
    """Compute-Wait on a log, with a factor for each job."""

    def __init__(self, case: HeldOutCase) -> None:
        self.trace = case.trace()
        self._case = case
        self._spec = replace(case.spec(), budget_mode="open", waiting="infinite")
        self._unit_h = self.trace.gpus * self.trace.duration_h

    def run(self, factors: Floats, jobs: int) -> HeldOutRun:
        """The run of the log that ends after so many jobs."""
        trace = _first(self.trace, jobs, np.minimum(factors * self._unit_h, 1e7))
        return simulated(self._case, trace, self._spec, "open, wait")

    def constant(self, factor: float, jobs: int) -> HeldOutRun:
        """The same factor for all."""
        return self.run(np.full(len(self.trace), factor), jobs)


def _first(trace: Trace, jobs: int, max_wait_h: Floats) -> Trace:
    names = ("ids", "arrival_h", "duration_h", "gpus", "cpus", "memory_gib", "nodes", "cost")
    return replace(
        trace, **{name: getattr(trace, name)[:jobs] for name in names}, max_wait_h=max_wait_h[:jobs]
    )


def _spends(percent: float, increase: Callable[[float], float]) -> float:
    """The factor that realises so many percent; the largest or 0 if none does."""
    if increase(MOST) < percent:
        return MOST
    if increase(0.0) > percent:
        return 0.0
    low, high = np.log(LEAST), np.log(MOST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if increase(float(np.exp(middle))) > percent else (middle, high)
    return float(np.exp(low))


def anytime(loop: OpenLoop, percent: float, best: float) -> tuple[HeldOutRun, float, int]:
    """A factor per thousand jobs that holds P at each end, as near to the best of the whole as can be.

    Returns its result, by how many points the best factor alone is off P at the ends where P could be spent,
    and how many of the thousands have another factor than the best.
    """
    jobs = len(loop.trace)
    factors, off, changed = np.full(jobs, best), 0.0, 0
    for start in range(0, jobs, STEP):
        end = min(start + STEP, jobs)
        slack = TOLERANCE if end < jobs else 0.0
        spendable = loop.constant(MOST, end).increase >= percent - TOLERANCE
        if spendable:
            off = max(off, abs(loop.constant(best, end).increase - percent), key=abs)

        def increase(factor: float, start: int = start, end: int = end) -> float:
            factors[start:] = factor
            return loop.run(factors, end).increase

        now = increase(best)
        if now > percent + slack or (now < percent - slack and spendable):
            target = percent + slack if now > percent else percent - slack
            factors[start:end] = _spends(target, increase)
            changed += 1
        factors[end:] = best
    return loop.run(factors, jobs), off, changed


def rows(case: HeldOutCase) -> list[tuple[str, ...]]:
    """A row per P that the log can spend."""
    loop = OpenLoop(case)
    jobs = len(loop.trace)
    curve = sorted((r.increase, r.cost, r.p99) for r in (loop.constant(factor, jobs) for factor in GRID))
    increases, costs, p99s = np.array(curve).T
    found: list[tuple[str, ...]] = []
    for percent in PERCENTS:
        if increases[-1] < percent - TOLERANCE:
            continue
        best = _spends(percent, lambda factor: loop.constant(factor, jobs).increase)
        result, off, changed = anytime(loop, percent, best)
        there = float(np.interp(result.increase, increases, costs))
        saved = 100 * (there - result.cost) / costs[0]
        p99 = float(np.interp(result.increase, increases, p99s))
        numbers = (f"{off:.1f}", str(changed), f"{saved:+.1f}", f"{result.p99:.1f}", f"{p99:.1f}")
        found.append((case.name, f"{percent:g} %", *numbers))
    return found


def main() -> None:
    """A table; arguments are names of traces, all if none is named."""
    names = [name for name in sys.argv[1:] if name in CASES] or list(CASES)
    print(table(HEAD, [row for name in names for case in CASES[name] for row in rows(case)]))


if __name__ == "__main__":
    main()
