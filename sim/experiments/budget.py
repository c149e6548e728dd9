"""Does a calibrated budget mean what it says, and what does it save at equal delay?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sim.core_engine import simulate
from sim.experiments.shared import PHILLY, RESULTS, SMALL, doubling, shared_trace, table
from sim.spec import Spec
from sim.trace import Trace

COMMAND = "python -m sim.experiments.budget"
PERCENTS = (5, 10, 25)
#: Budgets of the open-loop curve, percent.
GRID = (1, 2.5, 5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 130, 160, 200)
COARSE = (2.5, 5, 10, 20, 35, 50, 75, 100)


@dataclass(frozen=True, slots=True)
class Point:
    """One run: realised increase of mean JCT over No-Wait, percent, and cloud cost, GPU-hours."""

    increase: float
    cost: float
    #: The increase of the first and of the second half of the jobs that count.
    first: float
    second: float


def point(trace: Trace, spec: Spec) -> Point:
    """Run it. Under No-Wait a job takes its run time, so the increase needs no second run."""
    outcomes = simulate(trace, trace.duration_h, spec)
    delay_h = outcomes.end_h - trace.arrival_h - trace.duration_h
    last = len(trace) - spec.warmup + 1
    middle = (spec.warmup + last) // 2

    def increase(jobs: slice) -> float:
        return float(100 * delay_h[jobs].sum() / trace.duration_h[jobs].sum())

    counted = slice(spec.warmup, last)
    halves = increase(slice(spec.warmup, middle)), increase(slice(middle, last))
    return Point(increase(counted), float(outcomes.charged[counted].sum()), *halves)


def compare(trace: Trace, spec: Spec, grid: tuple[float, ...]) -> Iterator[tuple[object, ...]]:
    """A row for every P: what open loop and calibration realise, and both savings at equal increase."""
    free = point(trace, replace(spec, waiting="no-wait")).cost
    curve = sorted(
        (p.increase, p.cost) for p in (point(trace, replace(spec, budget_percent=b)) for b in grid)
    )
    increases, costs = zip(*curve, strict=True)
    for percent in PERCENTS:
        told = replace(spec, budget_percent=percent)
        loose = point(trace, told)
        held = point(trace, replace(told, budget_mode="calibrated"))
        equal = float(np.interp(held.increase, increases, costs))
        yield (
            f"{percent} %",
            f"{loose.increase:.2f} %",
            f"**{held.increase:.2f} %**",
            f"{held.first:.1f} · {held.second:.1f}",
            f"{100 * (1 - loose.cost / free):.1f} %",
            f"**{100 * (1 - held.cost / free):.1f} %**",
            f"{100 * (1 - equal / free):.1f} %",
        )


def main() -> None:
    """Run all, write the page."""
    head = (
        "P",
        "open loop realises",
        "calibrated realises",
        "its halves, %",
        "open loop saves",
        "calibrated saves",
        "open loop saves at that increase",
    )
    parts = [INTRODUCTION]
    for title, trace, spec, grid in cases():
        print(title, flush=True)
        parts += [f"## {title}", table(head, compare(trace, spec, grid))]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "budget-calibrated.md").write_text("\n\n".join([*parts, READING]) + "\n", encoding="utf-8")


def cases() -> Iterator[tuple[str, Trace, Spec, tuple[float, ...]]]:
    """The traces at hand, each with its cluster."""
    for name, warmup in (("phillylike_r24", 500), ("tab4_s1.0", 100)):
        trace = shared_trace(f"starburst/{name}.csv")
        if trace is not None:
            title = f"{name}: {len(trace):,} jobs, 4 × 8 GPUs, best-fit, warm-up {warmup}"
            yield title, trace, replace(SMALL, warmup=warmup), GRID
    for seed in (1, 2, 3):
        title = f"Load .75, doubled half-way (seed {seed}): 12,000 jobs, 4 × 8 GPUs, best-fit, warm-up 500"
        yield title, doubling(seed), replace(SMALL, warmup=500), GRID
    philly = shared_trace("philly.csv")
    if philly is not None:
        yield f"philly: {len(philly):,} jobs, 64 × 8 GPUs, first-fit, warm-up 5000", philly, PHILLY, COARSE


INTRODUCTION = f"""# A budget that means what it says

`{COMMAND}`: Compute-Wait, out of order, right estimates. "Realises" is the increase
of mean JCT over No-Wait, of the jobs that count; P is what the user allowed. Savings are of cloud GPU-hours
against No-Wait. The last column reads the open-loop curve (budgets from 1 to 200 %) at the increase that
calibration realised."""

READING = """## Reading it

- Realised increase: within P ± 2 points in 17 of 18 runs. tab4_s1.0 misses at P = 10 % by .55 (12.55 %): of
  its 500 jobs 300 count, and a few large ones that wait decide the mean; the control learns over hundreds of
  jobs. Philly at P = 25 % is on target as a whole (26.19 %) but not in its halves (34.2 and 20.2 %): its load
  comes in waves that are longer than the control's window, 3,000 jobs.
- Where the load doubles, the first half at P = 25 % does not spend its budget (7.5 to 20.5 %): too few jobs
  want to leave at load .75. What is unspent is spent when the load has doubled (33 to 40 %), so that the
  whole trace comes to P.
- Saving at equal increase: better than open loop in 13 of 18 runs, worse in five: phillylike at 5 % (by 3.7
  points) and 10 % (.1), tab4 at 5 % (2.8), seed 3 at 25 % (.4), philly at 25 % (4.3). So "never worse" is not
  met run by run. It is at the limit of what can be told apart: points of the open-loop curve lie off a line
  through their neighbours by 3.2 % of cost on phillylike, 17 % on tab4, 1.1 % on the doubled load and 4.8 %
  on philly (root mean square), since one large job more or less in the cloud decides. Other gains moved each
  of these differences by as much, in both directions (philly at 25 %: from -6 to +15 % of cost).
- The gains were chosen on the three shared traces and on one more seed of the doubled load; seeds 1 to 3 were
  not looked at before."""


if __name__ == "__main__":
    main()
