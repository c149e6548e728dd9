"""Does a calibrated budget mean what it says, and what does it save at equal delay?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sim import array_engine, core_engine
from sim.experiments.shared import PHILLY, RESULTS, SMALL, doubling, shared_trace, table
from sim.outcomes import Outcomes
from sim.spec import Spec
from sim.trace import Floats, Trace

COMMAND = "python -m sim.experiments.budget"
PERCENTS = (5, 10, 25)
#: Budgets of the open-loop curve, percent.
GRID = tuple(float(percent) for percent in np.geomspace(0.5, 300, 160))

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


def scatter(points: list[Point]) -> float:
    """How far costs lie off the falling curve: root mean square, percent of its cost; from 2 to 40 %."""
    (increases, costs), (_, fitted) = jagged(points), falling(points)
    near = (increases >= 2) & (increases <= 40)
    return float(100 * np.sqrt(np.mean((costs[near] / fitted[near] - 1) ** 2)))


def compare(trace: Trace, spec: Spec) -> tuple[list[tuple[object, ...]], float]:
    """Rows for every P, sitting out hopeless waits and leaving; the scatter of the open-loop curve."""
    free = point(trace, replace(spec, waiting="no-wait")).cost
    loop = [point(trace, replace(spec, budget_percent=percent)) for percent in GRID]
    rows: list[tuple[object, ...]] = []
    for hopeless in ("leave", "wait"):
        for percent in PERCENTS:
            told = replace(spec, budget_percent=percent)
            loose = point(trace, told)
            held = point(trace, replace(told, budget_mode="calibrated", hopeless=hopeless))
            saved = 100 * (1 - held.cost / free)
            fitted, read = (
                100 * (1 - cost_at(curve, held.increase) / free) for curve in (falling(loop), jagged(loop))
            )
            rows.append(
                (
                    f"{percent} %",
                    hopeless,
                    f"{loose.increase:.2f} %",
                    f"**{held.increase:.2f} %**",
                    f"{held.first:.1f} · {held.second:.1f}",
                    f"{100 * (1 - loose.cost / free):.1f} %",
                    f"**{saved:.1f} %**",
                    f"{fitted:.1f} % ({saved - fitted:+.1f})",
                    f"{read:.1f} % ({saved - read:+.1f})",
                )
            )
    return rows, scatter(loop)


def most(trace: Trace, spec: Spec) -> str:
    """What the two halves would realise if nothing ever left: more cannot be spent."""
    endless = point(trace, replace(spec, waiting="infinite"))
    return f"{endless.first:.0f} and {endless.second:.0f} %"


def main() -> None:
    """Run all, write the page."""
    head = (
        "P",
        "hopeless",
        "open loop realises",
        "calibrated realises",
        "its halves, %",
        "open loop saves",
        "calibrated saves",
        "open loop there, fitted",
        "open loop there, read off",
    )
    parts = [INTRODUCTION]
    for title, trace, spec in cases():
        print(title, flush=True)
        rows, off = compare(trace, spec)
        limits = f"If no job left, its halves would realise {most(trace, spec)}."
        note = f"Scatter of the open-loop curve: {off:.1f} % of cost. {limits}"
        parts += [f"## {title}", table(head, rows), note]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "budget-calibrated.md").write_text("\n\n".join([*parts, READING]) + "\n", encoding="utf-8")


def cases() -> Iterator[tuple[str, Trace, Spec]]:
    """The traces at hand, each with its cluster."""
    for name, warmup in (("phillylike_r24", 500), ("tab4_s1.0", 100)):
        trace = shared_trace(f"starburst/{name}.csv")
        if trace is not None:
            title = f"{name}: {len(trace):,} jobs, 4 × 8 GPUs, best-fit, warm-up {warmup}"
            yield title, trace, replace(SMALL, warmup=warmup)
    for seed in (1, 2, 3):
        title = f"Load .75, doubled half-way (seed {seed}): 12,000 jobs, 4 × 8 GPUs, best-fit, warm-up 500"
        yield title, doubling(seed), replace(SMALL, warmup=500)
    philly = shared_trace("philly.csv")
    if philly is not None:
        yield f"philly: {len(philly):,} jobs, 64 × 8 GPUs, first-fit, warm-up 5000", philly, PHILLY


INTRODUCTION = f"""# A budget that means what it says

`{COMMAND}`: Compute-Wait, out of order, right estimates. "Realises" is the increase
of mean JCT over No-Wait, of the jobs that count; P is what the user allowed. Savings are of cloud GPU-hours
against No-Wait. Open loop is the plain policy, which sits hopeless waits out; calibration is shown with jobs
leaving when their wait is hopeless ("leave", see hopeless-waits.md) and without ("wait").

"Open loop there" is what open loop saves at the increase that calibration realised, from {len(GRID)} budgets
between .5 and 300 %: on the falling curve nearest to them (isotonic regression), and read off between the
two neighbouring points. In brackets: by how much calibration saves more, in points. Scatter is the root mean
square distance of open-loop runs from their falling curve, between 2 and 40 %."""

READING = """## Reading it

- Realised increase: within P ± 2 points in 16 of 18 runs with "leave" and in 16 with "wait". With "leave"
  tab4 misses P = 25 % (19.36 %: only 301 of its 500 jobs count, and the control learns over hundreds) and
  so does seed 3 of the doubled load (22.67 %), whose first half could not spend more than 13 % if nothing
  left. With "wait" seeds 1 and 2 are at 28.4 and 28.5 % for P = 25 %.
- Halves differ where the load does. What is unspent at load .75 is spent when the load has doubled, so that
  the whole comes to P; at P = 25 % the second half alone is at 34 to 44 %. Philly at 25 %: 29.7 and 22.0 %.
- Saving at equal increase, "leave": above open loop's fitted curve in 16 of 18 runs, by up to 19 points;
  below it for tab4 at 25 % (.1) and philly at 25 % (1.3). Read off: below in three (tab4 2.2, seed 3 .5,
  philly 1.3, all at 25 %). So "never worse" is nearly met, not met: tab4's and seed 3's misses are of
  the scatter's size, philly's (2.8 % of cost, scatter .6 %) is not. There calibration saves no more at 25 %
  than at 10 %.
- "wait", which is the control alone: below the fitted curve in three runs (tab4 at 5 % by 2.5 and at 25 %
  by 1.0, seed 3 at 25 % by 1.0), read off in one (seed 3, .9). Most of the gain of "leave" is not the
  control's: open loop would gain from leaving too (hopeless-waits.md), and is not shown with it here.
- Before, the trend learnt faster than philly's long waits showed their effect, and the multiplier swung
  between 1/8 and 60. Now the horizon grows with the number of jobs that run at a time.
- Gains were chosen with "leave" on traces that are not on this page: seeds 11 and 12 of the doubled load
  and three generated ones with heavier tails and waves; that the horizon grows, also on one for 512 GPUs.
  But that it had to was seen on philly, and an earlier form of it (a sum instead of a maximum) was dropped
  after it missed on tab4. Seeds 1 to 3 were looked at in that same trial. Neighbouring gains move single
  runs by several points of saving in either direction."""


if __name__ == "__main__":
    main()
