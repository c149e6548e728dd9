"""How fast tasks are packed, and how near to the optimum: Algorithm 1 (Full) and the certified optimizer.

Tasks of ten kinds are drawn evenly from ten workloads, with CPUs by family and physical cores; those of 94
kinds from the demands of the Alibaba-shaped trace, with vCPUs. Every figure is CPU time of a process of its
own, after what it imports and without reading files. The gap is the share of the cost that could be saved at
most; that of Full is against the optimizer's bound.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.readers.packing import read_catalog
from starburst.domain.job import Task
from starburst.domain.money import MICRO
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import Classes, classes_of
from starburst.policy.packing.covering.cover import cover
from starburst.policy.packing.packers.reconfigure import full
from starburst.policy.packing.plan import Situation
from starburst.policy.packing.throughput import NO_INTERFERENCE

SHARED = Path(os.environ.get("STARBURST_SHARED") or Path(__file__).parents[2] / "shared")
EVA = SHARED / "cases" / "eva"
FAMILIES = ("p3", "c7i", "r7i")
#: Kinds of tasks → file of their demands, catalog's column of CPUs.
KINDS = {10: ("workloads.csv", "cpu_cores"), 94: ("trace_pai_full_gavel.csv", "vcpu")}
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


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="up to 1,000 tasks: only to see that it runs")
    parser.add_argument("--one", nargs=3, metavar=("PACKER", "TASKS", "KINDS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one[0], int(args.one[1]), int(args.one[2]))))
    elif not (EVA / "micro_trials.json").is_file():
        print("no tasks: set STARBURST_SHARED to the folder that has cases/eva")
    else:
        trials()
        table(small=args.small)


def trials() -> None:
    """The recorded draws of 200 tasks, all in this process."""
    recorded = json.loads((EVA / "micro_trials.json").read_text(encoding="utf-8"))["trials"]
    rows = {row["workload"]: row for row in _rows("workloads.csv")}
    print(f"{'recorded trial':<16}{'CPU s':>8}{'cost, $/h':>14}{'gap':>10}{'recorded optimum':>19}")
    for trial in recorded:
        drawn = [rows[name] for name, times in trial["counts"].items() for _ in range(times)]
        figures = measured("optimal", classes(drawn, "cpu_cores"))
        best = trial["best_integer"]
        cost, gap = figures["cost"], figures["gap"]
        print(f"{trial['trial']:<16}{figures['cpu_s']:>8.3f}{cost:>14,.3f}{gap:>10.3%}{best:>19,.3f}")


def table(*, small: bool) -> None:
    """Sizes up to 100,000 tasks."""
    titles = ("tasks", "kinds", "CPU s", "cost, $/h", "bound, $/h", "gap", "wanted")
    print(f"\n{'packer':<10}" + "".join(f"{title:>{13 if '$' in title else 11}}" for title in titles))
    bounds: dict[tuple[int, int], float] = {}
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


def _apart(packer: str, tasks: int, kinds: int) -> dict[str, Any]:
    """One plan in its own process."""
    command = [sys.executable, "-m", "bench.packing", "--one", packer, str(tasks), str(kinds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def one(packer: str, tasks: int, kinds: int) -> dict[str, Any]:
    """Draw and pack."""
    file, cpu_column = KINDS[kinds]
    listed = [row for row in _rows(file) if row["workload"] != "resnet18" or kinds != 10]
    return measured(packer, classes(random.Random(1).choices(listed, k=tasks), cpu_column))


def measured(packer: str, found: Classes) -> dict[str, Any]:
    """CPU seconds of one plan, and what it costs; dollars per hour."""
    begin = time.process_time()
    if packer == "full":
        machines, bound, gap = full(found, found.counts, NO_INTERFERENCE), None, None
    else:
        best = cover(found, found.counts)
        machines, bound, gap = list(best.patterns), best.bound_micro / MICRO, best.gap
    seconds = time.process_time() - begin
    cost = sum(int(found.market.rate[k]) * times for k, _, times in machines) / MICRO
    return {"cpu_s": seconds, "cost": cost, "bound": bound, "gap": gap}


def classes(drawn: Sequence[dict[str, str]], cpu_column: str) -> Classes:
    """Tasks with these demands, by class; grouping them is not part of what is measured."""
    offers = tuple(m.offer for m in read_catalog(EVA / "instance_types.csv", cpu_column=cpu_column))
    return classes_of(Situation(tuple(_task(i, row) for i, row in enumerate(drawn)), offers))


def _task(number: int, row: dict[str, str]) -> Task:
    gpus, memory_gib = int(row["gpu"]), float(row["ram_gb"])
    demands = [(family, Resources.of(gpus, float(row[f"cpu_{family}"]), memory_gib)) for family in FAMILIES]
    return Task(f"j{number}", 0, demands[0][1], tuple(demands))


def _rows(file: str) -> list[dict[str, str]]:
    with (EVA / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


if __name__ == "__main__":
    main()
