"""How fast tasks are packed, and how near to the optimum: Algorithm 1 (Full) and the certified optimizer.

Tasks of ten kinds are drawn evenly from ten workloads, with CPUs by family and physical cores; those of 94
kinds from the demands of the Alibaba-shaped trace, with vCPUs. Every figure is CPU time of a process of its
own, after what it imports and without reading files. The gap is the share of the cost that could be saved at
most; that of Full is against the optimizer's bound. It fails where a gap is larger than wanted, or a cost
above a recorded optimum; no time is judged, as those wanted are of a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from bench.growth import beyond
from sim.experiments.packing.eva_files import EVA
from sim.experiments.packing.plan_speed import classes_drawn, demands, plan_drawn, plan_of

#: Packer, tasks, kinds, most CPU seconds and largest gap wanted.
TARGETS = (
    ("full", 1_000, 10, None, None),
    ("full", 8_000, 10, None, None),
    ("full", 100_000, 10, None, None),
    ("full", 8_000, 94, None, None),
    ("optimal", 200, 10, 1.0, 0.0),
    ("optimal", 8_000, 10, 5.0, 0.002),
    ("optimal", 8_000, 94, 20.0, 0.005),
    ("optimal", 100_000, 10, None, None),
    ("optimal", 100_000, 94, None, None),
)

#: What a recorded optimum, and a bound, may be rounded by.
ROUNDED = 1e-4


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="up to 1,000 tasks: only to see that it runs")
    parser.add_argument("--one", nargs=3, metavar=("PACKER", "TASKS", "KINDS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(plan_drawn(args.one[0], int(args.one[1]), int(args.one[2]))))
    elif not (EVA / "micro_trials.json").is_file():
        print("no tasks: set STARBURST_SHARED to the folder that has cases/eva")
    else:
        ratios, most = trials()
        wanted, gaps = table(small=args.small)
        sys.exit(beyond(ratios | wanted, most | gaps))


def trials() -> tuple[dict[str, float], dict[str, float]]:
    """The recorded draws of 200 tasks, all in this process: costs ÷ recorded optimum, and their limits."""
    recorded = json.loads((EVA / "micro_trials.json").read_text(encoding="utf-8"))["trials"]
    rows = {row["workload"]: row for row in demands("workloads.csv")}
    print(f"{'recorded trial':<16}{'CPU s':>8}{'cost, $/h':>14}{'gap':>10}{'recorded optimum':>19}")
    ratios = {}
    for trial in recorded:
        drawn = [rows[name] for name, times in trial["counts"].items() for _ in range(times)]
        figures = plan_of("optimal", classes_drawn(drawn, "cpu_cores"))
        best = trial["best_integer"]
        cost, gap = figures["cost"], figures["gap"]
        print(f"{trial['trial']:<16}{figures['cpu_s']:>8.3f}{cost:>14,.3f}{gap:>10.3%}{best:>19,.3f}")
        ratios[f"trial {trial['trial']}, cost ÷ optimum"] = cost / best
    return ratios, dict.fromkeys(ratios, 1 + ROUNDED)


def table(*, small: bool) -> tuple[dict[str, float], dict[str, float]]:
    """Sizes up to 100,000 tasks: gaps, and the largest wanted."""
    titles = ("tasks", "kinds", "CPU s", "cost, $/h", "bound, $/h", "gap", "wanted")
    print(f"\n{'packer':<10}" + "".join(f"{title:>{13 if '$' in title else 11}}" for title in titles))
    bounds: dict[tuple[int, int], float] = {}
    found: dict[str, float] = {}
    most: dict[str, float] = {}
    lines = [row for row in TARGETS if not small or row[1] <= 1_000]
    # The optimizer goes first: its bound is what Full is measured by.
    for packer, tasks, kinds, seconds, gap in sorted(lines, key=lambda row: row[0], reverse=True):
        figures = _apart(packer, tasks, kinds)
        bound = bounds.setdefault(
            (tasks, kinds), figures["bound"] or _apart("optimal", tasks, kinds)["bound"]
        )
        near = (figures["cost"] - bound) / figures["cost"]
        wanted = f"{seconds:g} s, {gap:.1%}" if seconds is not None and gap is not None else ""
        print(f"{packer:<10}{tasks:>11,}{kinds:>11}{figures['cpu_s']:>11.3f}", end="")
        print(f"{figures['cost']:>13,.2f}{bound:>13,.2f}{near:>11.3%}{wanted:>14}", flush=True)
        if gap is not None:
            name = f"gap of {tasks:,} tasks of {kinds} kinds"
            found[name], most[name] = near, gap + ROUNDED
    return found, most


def _apart(packer: str, tasks: int, kinds: int) -> dict[str, Any]:
    """One plan in its own process."""
    command = [sys.executable, "-m", "bench.packing", "--one", packer, str(tasks), str(kinds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    main()
