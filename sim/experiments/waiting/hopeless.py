"""What it brings that a job leaves at once when it could not start before its wait ends anyway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from sim.engines.core_engine import simulate
from sim.experiments.shared import PHILLY, RESULTS, SMALL, doubling, shared_trace, table
from sim.outcomes import measure
from sim.spec import Spec
from sim.trace import Floats, Trace

COMMAND = "python -m sim.experiments.waiting.hopeless"
Ints = tuple[int, ...]

#: Budgets, percent; the open-loop factor of each is used.
PERCENTS = (10, 25, 50, 100)
#: Estimates are off by up to this many percent, evenly spread.
ERRORS = (0, 25, 100)


def estimates(trace: Trace, error_percent: float) -> Floats:
    """Run times as users would guess them."""
    off = np.random.default_rng(0).uniform(-error_percent, error_percent, len(trace)) / 100
    return trace.duration_h * (1 + off)


def run(trace: Trace, spec: Spec, error_percent: float) -> tuple[float, float]:
    """Cloud cost in GPU-hours and mean increase of JCT over No-Wait, percent."""
    result = measure(trace, simulate(trace, estimates(trace, error_percent), spec), spec)
    counted = trace.duration_h[spec.warmup : len(trace) - spec.warmup + 1]
    return result.cloud_cost, 100 * (result.mean_jct_h / float(np.mean(counted)) - 1)


def pareto(trace: Trace, spec: Spec, percents: Ints, errors: Ints) -> Iterator[tuple[object, ...]]:
    """A row for every budget and error: cost and increase when waits are sat out, and when they are not."""
    for error in errors:
        for percent in percents:
            budgeted = replace(spec, budget_percent=percent)
            cost, increase = run(trace, budgeted, error)
            cost_left, increase_left = run(trace, replace(budgeted, hopeless="leave"), error)
            yield (
                f"±{error} %",
                f"{percent} %",
                f"{cost:,.0f}",
                f"**{cost_left:,.0f}** ({_change(cost_left, cost)})",
                f"{increase:.2f} %",
                f"**{increase_left:.2f} %** ({_change(increase_left, increase)})",
            )


def spent_where_it_pays(trace: Trace, spec: Spec) -> Iterator[tuple[object, ...]]:
    """Rows of calibrated budgets: what is not waited in vain is waited where it pays."""
    for percent in (5, 10, 25):
        budgeted = replace(spec, budget_percent=percent, budget_mode="calibrated")
        for hopeless in ("wait", "leave"):
            cost, increase = run(trace, replace(budgeted, hopeless=hopeless), 0)
            yield f"{percent} %", hopeless, f"{increase:.2f} %", f"{cost:,.0f}"


def _change(new: float, old: float) -> str:
    return f"{100 * (new / old - 1):+.0f} %"


def main() -> None:
    """Run all, write the page."""
    head = ("estimates off by", "P", "cost, sat out", "cost, left", "increase, sat out", "increase, left")
    parts = [INTRODUCTION]
    for title, trace, spec, percents, errors in cases():
        print(title, flush=True)
        parts += [f"## {title}", table(head, pareto(trace, spec, percents, errors))]
        if spec is not PHILLY:
            rows = table(("P, calibrated", "hopeless", "realised", "cost"), spent_where_it_pays(trace, spec))
            parts += ["A calibrated budget spends where it pays what is not waited in vain:", rows]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "hopeless-waits.md").write_text("\n\n".join([*parts, READING]) + "\n", encoding="utf-8")


def cases() -> Iterator[tuple[str, Trace, Spec, Ints, Ints]]:
    """The traces at hand, each with its cluster, the budgets, and the errors of its estimates."""
    for name, warmup in (("phillylike_r24", 500), ("tab4_s1.0", 0)):
        trace = shared_trace(f"starburst/{name}.csv")
        if trace is not None:
            title = f"{name}: {len(trace):,} jobs, 4 × 8 GPUs, best-fit, warm-up {warmup}"
            yield title, trace, replace(SMALL, warmup=warmup), PERCENTS, ERRORS
    title = "Load .75, doubled half-way (seed 1): 12,000 jobs, 4 × 8 GPUs, best-fit, warm-up 500"
    yield title, doubling(1), replace(SMALL, warmup=500), PERCENTS, ERRORS
    philly = shared_trace("philly.csv")
    if philly is not None:
        yield (
            f"philly: {len(philly):,} jobs, 64 × 8 GPUs, first-fit, warm-up 5000",
            philly,
            PHILLY,
            (10, 25),
            (0, 25),
        )


INTRODUCTION = f"""# No hopeless waits

`{COMMAND}`: Compute-Wait with the open-loop factor of each P, out of order; waits are sat
out (`hopeless` is "wait") or left ("leave"). Cost is in cloud GPU-hours, the increase is of mean JCT over
No-Wait. Errors of estimates are uniform."""

READING = """## Reading it

- With right estimates the cost is the same to the last digit, since the same jobs leave: all that changes is
  that they leave earlier (`tests/core/test_hopeless.py` holds this on random cases). The Pareto curve moves
  to lower JCT at equal cost.
- With wrong estimates some leave that would have found room. At ±25 % the increase falls nearly as much (on
  philly by a third as much) and cost moves by -18 to +13 %, mostly up by 1 %. At ±100 % the increase falls by
  19 to 55 % and cost rises by 4 % on average (-1 to +18 %): there it is a trade, not a gain for nothing.
- With a calibrated budget, which spends elsewhere what is not waited in vain, cost changes at about the same
  realised increase, or a smaller one, by -22 to -13 % on phillylike, -27 to -1 % on tab4, -7 to -2 % on the
  doubled load.
- A gang's tasks are placed greedily when its earliest start is judged, as they are when it starts.
- The bound ignores who stands ahead in the queue and who comes later, so some waits in vain remain.
- It costs time: philly takes 2.3 times as long (17.7 against 7.6 CPU s at P = 10 %), as every check looks at
  the nodes one by one. Checks are made only when a run begins on a node that a job counts on."""


if __name__ == "__main__":
    main()
