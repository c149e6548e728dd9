"""What estimates of run times are worth to open loop: docs/results/estimates.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import chain

import numpy as np

from sim.experiments.shared import table
from sim.experiments.waiting.held_out import CASES, CURVE, PERCENTS, HeldOutRun, curve, ends
from sim.experiments.waiting.held_out_report import TOLERANCE, holds

COMMAND = "python -m sim.experiments.waiting.estimates KINDS… NAMES… > RUNS.jsonl"
#: One kind: calibrated budgets beside open loop, both with these estimates; their runs: held_out.py.
REPORT = "python -m sim.experiments.waiting.estimates RUNS.jsonl KIND [KIND]"
#: Every other budget of the curve: without estimates only the core simulates.
BUDGETS = CURVE[::2]


class SavingCurve:
    """Saving and p99 over the increase of mean completion time, between No-Wait and the last budget."""

    def __init__(self, no_wait: HeldOutRun, runs: Iterable[HeldOutRun]) -> None:
        points = sorted((run.increase, run.cost, run.p99) for run in runs)
        increases, costs, self._p99s = np.array([(no_wait.increase, no_wait.cost, no_wait.p99), *points]).T
        self._increases, self._saved = increases, 100 * (1 - costs / no_wait.cost)

    @property
    def reach(self) -> float:
        """The largest increase, percent."""
        return float(self._increases[-1])

    def at(self, increase: float) -> tuple[float, float]:
        """Percent saved, and the p99 of slowdowns, at this increase."""
        values = (np.interp(increase, self._increases, column) for column in (self._saved, self._p99s))
        saved, p99 = map(float, values)
        return saved, p99


def curves(runs: Iterable[HeldOutRun]) -> Mapping[str, dict[str, SavingCurve]]:
    """By run and kind of estimates."""
    by_case: dict[str, list[HeldOutRun]] = {}
    for run in runs:
        by_case.setdefault(run.case, []).append(run)
    found: dict[str, dict[str, SavingCurve]] = {}
    for case, of_case in by_case.items():
        no_wait = next(run for run in of_case if run.policy == "no-wait")
        kinds = dict.fromkeys(run.estimates for run in of_case if run.policy == "open, wait")
        found[case] = {
            kind: SavingCurve(
                no_wait, (r for r in of_case if r.policy == "open, wait" and r.estimates == kind)
            )
            for kind in kinds
        }
    return found


class _Pairs:
    """Savings and p99 of two ways beside each other, as rows of a table."""

    def __init__(self, *head: str) -> None:
        self._head = head
        self._rows: list[tuple[str, ...]] = []
        self._gains: list[float] = []
        self._ratios: list[float] = []

    def add(self, names: tuple[str, ...], first: tuple[float, float], second: tuple[float, float]) -> None:
        """Percent saved and p99 of each."""
        self._gains.append(second[0] - first[0])
        self._ratios.append(second[1] / first[1])
        saves = f"{first[0]:.1f} %", f"{second[0]:.1f} % ({self._gains[-1]:+.1f})"
        self._rows.append((*names, *saves, f"{first[1]:.1f}", f"{second[1]:.1f}"))

    def told(self) -> str:
        """The table, the worst first, and its means."""
        gains = np.array(self._gains)
        worst_first = [self._rows[at] for at in np.argsort(gains, kind="stable")]
        return (
            f"{table(self._head, worst_first)}\n\n{len(gains)} points: {gains.mean():+.1f} on average, "
            f"{gains.min():+.1f} to {gains.max():+.1f}; cheaper by more than 2 in {(gains > 2).sum()}, "
            f"dearer in {(gains < -2).sum()}; p99 {np.mean(self._ratios):.2f} times"
        )


def report(runs: Iterable[HeldOutRun], kind: str, other: str) -> str:
    """Two kinds of estimates at equal increase, where both get there."""
    pairs = _Pairs("run", "longer by", f"{kind}: saves", f"{other}: saves", f"p99, {kind}", f"p99, {other}")
    for case, kinds in curves(runs).items():
        if {kind, other} <= kinds.keys():
            first, second = kinds[kind], kinds[other]
            for percent in (p for p in PERCENTS if p <= min(first.reach, second.reach)):
                pairs.add((case, f"{percent:g} %"), first.at(percent), second.at(percent))
    return pairs.told()


def calibrated(runs: Iterable[HeldOutRun], kind: str) -> str:
    """Calibrated budgets with these estimates, beside open loop with them at the same increase."""
    known = list(runs)
    loops, no_wait = curves(known), {run.case: run.cost for run in known if run.policy == "no-wait"}
    head = ("run", "P", "realises", "open: saves there", "calibrated: saves", "p99, open", "p99, calibrated")
    pairs = _Pairs(*head)
    ours = [run for run in known if run.policy == "control" and run.estimates == kind]
    for run in ours:
        saved = 100 * (1 - run.cost / no_wait[run.case])
        names = (run.case, f"{run.percent:g} %", f"{run.increase:.1f} %")
        pairs.add(names, loops[run.case][kind].at(run.increase), (saved, run.p99))
    most = {run.case: run.increase for run in known if run.policy == "infinite"}
    held = sum(holds(run, most[run.case]) for run in ours)
    over = sum(run.increase > run.percent + TOLERANCE for run in ours)
    return f"{pairs.told()}\nP ± {TOLERANCE:g} holds in {held}, P + {TOLERANCE:g} is exceeded in {over}."


def main() -> None:
    """Simulate, a line of JSON per run; or report of such lines."""
    words = sys.argv[1:]
    if words[0].endswith(".jsonl"):
        with open(words[0], encoding="utf-8") as lines:
            runs = [HeldOutRun(**json.loads(line)) for line in lines]
        print(report(runs, *words[1:]) if len(words) > 2 else calibrated(runs, words[1]))
        return
    for case in (case for name in words if name in CASES for case in CASES[name]):
        made = [ends(case), *(curve(case, "wait", BUDGETS, kind) for kind in words if kind not in CASES)]
        for run in chain(*made):
            print(json.dumps(asdict(run)), flush=True)


if __name__ == "__main__":
    main()
