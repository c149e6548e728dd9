"""CPU time and cost of one plan over tasks drawn from Eva's files: for `tables` and `bench.packing`.

Tasks of ten kinds are drawn evenly from ten workloads, with CPUs by family and physical cores; tasks of 94
kinds have the demands of the Alibaba-shaped trace, with vCPUs.
"""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Sequence
from typing import Any

from sim.experiments.packing.eva_files import EVA, FAMILIES
from sim.readers.packing import read_catalog
from starburst.domain.job import Task
from starburst.domain.money import MICRO
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import Classes, classes_of
from starburst.policy.packing.covering.cover import cover
from starburst.policy.packing.packers.reconfigure import full
from starburst.policy.packing.plan import Situation
from starburst.policy.packing.throughput import NO_INTERFERENCE

#: Kinds of tasks → file of their demands, catalog's column of CPUs.
KINDS = {10: ("workloads.csv", "cpu_cores"), 94: ("trace_pai_full_gavel.csv", "vcpu")}


def plan_drawn(packer: str, tasks: int, kinds: int) -> dict[str, Any]:
    """CPU seconds and cost of one plan for `tasks` tasks of so many kinds, drawn with a fixed seed."""
    file, cpu_column = KINDS[kinds]
    listed = [row for row in demands(file) if row["workload"] != "resnet18" or kinds != 10]
    return plan_of(packer, classes_drawn(random.Random(1).choices(listed, k=tasks), cpu_column))


def plan_of(packer: str, found: Classes) -> dict[str, Any]:
    """CPU seconds of one plan and its cost in dollars per hour; `bound` and `gap` are None for Full."""
    begin = time.process_time()
    if packer == "full":
        machines, bound, gap = full(found, found.counts, NO_INTERFERENCE), None, None
    else:
        best = cover(found, found.counts)
        machines, bound, gap = list(best.patterns), best.bound_micro / MICRO, best.gap
    seconds = time.process_time() - begin
    cost = sum(int(found.market.rate[k]) * times for k, _, times in machines) / MICRO
    return {"cpu_s": seconds, "cost": cost, "bound": bound, "gap": gap}


def classes_drawn(drawn: Sequence[dict[str, str]], cpu_column: str) -> Classes:
    """Tasks with these demands, by class; grouping them is not part of what is measured."""
    offers = tuple(m.offer for m in read_catalog(EVA / "instance_types.csv", cpu_column=cpu_column))
    return classes_of(Situation(tuple(_task(i, row) for i, row in enumerate(drawn)), offers))


def _task(number: int, row: dict[str, str]) -> Task:
    gpus, memory_gib = int(row["gpu"]), float(row["ram_gb"])
    demands = [(family, Resources.of(gpus, float(row[f"cpu_{family}"]), memory_gib)) for family in FAMILIES]
    return Task(f"j{number}", 0, demands[0][1], tuple(demands))


def demands(file: str) -> list[dict[str, str]]:
    """Rows of one of Eva's files."""
    with (EVA / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
