"""The tables of docs/results/held-out.md, from the lines of sim/experiments/waiting/held_out.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sim.experiments.shared import table
from sim.experiments.waiting.held_out import HeldOutRun

COMMAND = "python -m sim.experiments.waiting.held_out_report RUNS.jsonl"
#: Points by which the realised increase may differ from P.
TOLERANCE = 2.0
#: Points without which a rival's curve says nothing.
FEWEST = 5
RIVALS = ("open, wait", "open, leave")
THERE = tuple(f"{rival}: saves there" for rival in RIVALS)
HEAD = ("run", "P", "realises", "can realise", "saves", *THERE, "p99", "open loop's p99 there")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A run of the control, and how it did."""

    run: HeldOutRun
    holds: bool
    row: tuple[str, ...]


def verdicts(runs: Iterable[HeldOutRun], kind: str) -> list[Verdict]:
    """Every run of the control with these estimates, the misses first."""
    by_case: dict[str, list[HeldOutRun]] = {}
    for run in runs:
        by_case.setdefault(run.case, []).append(run)
    found = [
        _verdict(run, rivals)
        for rivals in by_case.values()
        for run in rivals
        if run.policy == "control" and run.estimates == kind
    ]
    return sorted(found, key=lambda verdict: verdict.holds)


def holds(run: HeldOutRun, most: float) -> bool:
    """Whether it realises P, or all that can be spent: `most`, the increase if every job waits for ever."""
    off = run.increase - run.percent
    return abs(off) <= TOLERANCE or (off < 0 and most < run.percent - TOLERANCE)


def _verdict(run: HeldOutRun, rivals: list[HeldOutRun]) -> Verdict:
    least, most = (next(r for r in rivals if r.policy == name) for name in ("no-wait", "infinite"))
    held = holds(run, most.increase)
    saves = 100 * (1 - run.cost / least.cost)
    gains, slow = [], ""
    for name in RIVALS:
        curve = sorted((r.increase, r.cost, r.p99) for r in rivals if r.policy == name)
        if len(curve) < FEWEST:
            gains.append("–")
            continue
        increases, costs, p99s = np.array([_ends(least), *curve, _ends(most)]).T
        there = 100 * (1 - float(np.interp(run.increase, increases, costs)) / least.cost)
        gains.append(f"{there:.1f} % ({saves - there:+.1f})")
        slow = slow or f"{np.interp(run.increase, increases, p99s):.1f}"
    mark = "" if held else "**"
    realises = f"{mark}{run.increase:.1f} %{mark}"
    row = (run.case, f"{run.percent:g} %", realises, f"{most.increase:.4g} %", f"{saves:.1f} %")
    return Verdict(run, held, (*row, *gains, f"{run.p99:.1f}", slow))


def _ends(run: HeldOutRun) -> tuple[float, float, float]:
    return run.increase, run.cost, run.p99


def main() -> None:
    """Print a table per kind of estimates."""
    with open(sys.argv[1], encoding="utf-8") as lines:
        runs = [HeldOutRun(**json.loads(line)) for line in lines]
    for kind in ("right", "wrong", "none"):
        found = verdicts(runs, kind)
        held = sum(verdict.holds for verdict in found)
        print(f"\n### Estimates: {kind} ({held} of {len(found)} hold)\n")
        print(table(HEAD, [verdict.row for verdict in found]))


if __name__ == "__main__":
    main()
