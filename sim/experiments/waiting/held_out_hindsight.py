"""How far runs of sim/experiments/waiting/held_out.py are from schedules that know all jobs in advance."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from sim.bound.best_possible import Yardstick
from sim.experiments.shared import table
from sim.experiments.waiting.held_out import CASES, HeldOutCase, HeldOutRun

COMMAND = "python -m sim.experiments.waiting.held_out_hindsight RUNS.jsonl"
HEAD = ("run", "P", "realises", "saves", "with hindsight: saves", "is cheaper by", "at least: saves")


def beside(case: HeldOutCase, runs: Iterable[HeldOutRun]) -> Iterator[tuple[HeldOutRun, float, float, float]]:
    """Each run with the bills of No-Wait, of a schedule with hindsight at its increase, and the bound."""
    yardstick = Yardstick(case.trace(), replace(case.spec(), budget_mode="open"))
    for run in runs:
        best = yardstick.at_budget(run.increase)
        yield run, best.no_wait, min(best.possible, run.cost), best.at_least


def main() -> None:
    """A table of the runs with right estimates, and their means."""
    with open(sys.argv[1], encoding="utf-8") as lines:
        runs = [HeldOutRun(**json.loads(line)) for line in lines]
    rows, cheaper, points = [], [], []
    for case in (case for cases in CASES.values() for case in cases):
        chosen = [
            run for run in runs if (run.case, run.policy, run.estimates) == (case.name, "control", "right")
        ]
        for run, no_wait, best, least in beside(case, chosen) if chosen else ():
            cheaper.append(100 * (1 - best / run.cost) if run.cost else 0.0)
            points.append(100 * (run.cost - best) / no_wait)
            saves = [f"{100 * (1 - bill / no_wait):.1f} %" for bill in (run.cost, best, least)]
            numbers = (f"{run.increase:.1f} %", *saves[:2], f"{cheaper[-1]:.1f} %", saves[2])
            rows.append((case.name, f"{run.percent:g} %", *numbers))
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print(table(HEAD, rows))
    print(f"\nmean: {np.mean(cheaper):.1f} % cheaper, {np.mean(points):.1f} points of No-Wait's bill")


if __name__ == "__main__":
    main()
