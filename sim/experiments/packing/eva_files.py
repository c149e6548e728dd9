"""What the experiments on packed clouds share: Eva's files, jobs made from them, runs two at a time."""

from __future__ import annotations

import csv
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean, stdev
from textwrap import fill
from typing import Any, Protocol, TypeVar

import numpy as np

from sim.eva_replica.run import simulate_packed
from sim.experiments.published import write_page
from sim.experiments.shared import SHARED
from sim.packing.cloud import CloudModel
from sim.packing.inputs import PackedJob, PairThroughput
from sim.packing.results import PackedResult
from sim.readers.packing import read_jobs
from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.registry import PACKERS, packer

EVA = SHARED / "cases" / "eva"
FAMILIES = ("p3", "c7i", "r7i")
#: Mean seconds from job to job in Eva's experiments (section 6.1).
GAP_S = 1200.0
#: As the paper calls them.
NAMES = {
    "none": "No-Packing",
    "stratus": "Stratus",
    "synergy": "Synergy",
    "owl": "Owl",
    "eva": "Eva",
    "eva-rp": "Eva-RP",
    "eva-single": "Eva-Single",
    "eva-partial": "Eva, Partial only",
    "eva-full": "Eva, Full only",
    "optimal": "optimal",
}


class Costed(Protocol):
    """A simulation's bill in dollars, and the CPU time it took."""

    @property
    def cost(self) -> float:
        """Dollars."""

    @property
    def cpu_seconds(self) -> float:
        """Of this machine."""


Item = TypeVar("Item")
Outcome = TypeVar("Outcome", bound=Costed)


@dataclass(frozen=True, slots=True)
class PackedPoint:
    """One simulation: a packer, and how its jobs are made (in the process that simulates)."""

    packer: str
    make: Callable[..., Sequence[PackedJob]]
    args: tuple[Any, ...] = ()
    #: The catalog's column: vCPUs for traces, physical cores for the demands of table 7.
    cpu_column: str = "vcpu"
    migration_delay: float = 1.0
    uniform: float | None = None

    def __str__(self) -> str:
        given = [*self.args, f"moves × {self.migration_delay:g}" if self.migration_delay != 1 else ""]
        given.append("" if self.uniform is None else f"throughput {self.uniform:g}")
        return f"{self.packer} on {self.make.__name__} " + ", ".join(
            str(word) for word in given if word != ""
        )


@cache
def cloud(cpu_column: str = "vcpu") -> CloudModel:
    """Eva's machines, workloads and throughputs."""
    files = (EVA / f"{name}.csv" for name in ("instance_types", "workloads", "colocation_throughput"))
    return CloudModel.read(*files, cpu_column=cpu_column)


@cache
def eva_trace(name: str, jobs: int | None = None) -> list[PackedJob]:
    """The first jobs of trace_pai_NAME.csv."""
    return read_jobs(EVA / f"trace_pai_{name}.csv", cloud().kinds, limit=jobs)


@cache
def table_7() -> list[tuple[Task, int]]:
    """The ten workloads as a task of each, and how many tasks their jobs have.

    ResNet18 in gangs of two and of four slows and is slowed as ResNet18 is.
    """
    with (EVA / "workloads.csv").open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["workload"] != "resnet18"]
    found = []
    for row in rows:
        gpus, memory_gib = int(row["gpu"]), float(row["ram_gb"])
        demands = [(f, Resources.of(gpus, float(row[f"cpu_{f}"]), memory_gib)) for f in FAMILIES]
        task = Task("", 0, demands[0][1], tuple(demands), row["workload"].split("_")[0])
        found.append((task, int(row["num_tasks"])))
    return found


def gang(job: PackedJob, task: Task, size: int) -> PackedJob:
    """The job with so many tasks like this one; its work goes by its duration."""
    tasks = tuple(replace(task, job_id=job.id, rank=rank) for rank in range(size))
    return replace(job, tasks=tasks, iterations=None)


def from_table_7(
    seed: int, jobs: int, shortest_h: float, longest_h: float, size: int | None = None
) -> list[PackedJob]:
    """Jobs of workloads drawn evenly from table 7, logarithms of durations evenly, Poisson arrivals.

    From .5 to 16 h such durations have a mean of 4.47 h, as the jobs of Eva's table 6 seem to; even ones have
    8.25 h. `size`: tasks of each job; None is as the table says.
    """
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(GAP_S, jobs)).tolist()
    duration_s = (3600 * np.exp(rng.uniform(np.log(shortest_h), np.log(longest_h), jobs))).tolist()
    made = []
    for number, kind in enumerate(rng.integers(0, len(table_7()), jobs).tolist()):
        task, usual = table_7()[kind]
        job = PackedJob(str(number), arrival_s[number], duration_s[number], ())
        made.append(gang(job, task, usual if size is None else size))
    return made


def measure(point: PackedPoint) -> PackedResult:
    """Simulate it. As in Eva's experiments Owl knows all throughputs, and Stratus how long tasks run."""
    given = cloud(point.cpu_column)
    truth = given.truth if point.uniform is None else PairThroughput(default=point.uniform)
    return simulate_packed(
        point.make(*point.args),
        replace(given, truth=truth),
        packer(point.packer),
        migration_delay=point.migration_delay,
        sees=truth if point.packer == "owl" else None,
        estimates=point.packer == "stratus",
    )


def two_at_a_time(run: Callable[[Item], Outcome], items: Sequence[Item]) -> Iterator[Outcome]:
    """The results in order, with a line for each: dollars, and its CPU seconds."""
    for name in PACKERS:
        packer(name)  # Imported before the processes part, so that all run the same code.
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        for number, (item, result) in enumerate(zip(items, pool.map(run, items), strict=True), 1):
            spent = f"$ {result.cost:11,.2f} {result.cpu_seconds:7.1f} CPU s"
            print(f"{number:4}/{len(items)} {spent}  {item}", flush=True)
            yield result


def measured(points: Sequence[PackedPoint]) -> dict[PackedPoint, PackedResult]:
    """All of them, each once."""
    once = list(dict.fromkeys(points))
    return dict(zip(once, two_at_a_time(measure, once), strict=True))


def at_hand() -> bool:
    """Whether Eva's files are there; says so if not."""
    if EVA.is_dir():
        return True
    print("nothing to simulate: set STARBURST_SHARED to the folder that has cases/eva")
    return False


def spread(values: Sequence[float], form: str = ".2f", unit: str = "") -> str:
    """Mean ± standard deviation of a sample."""
    return f"{mean(values):{form}} ± {stdev(values):{form}}{unit}"


def beside(ours: float, theirs: float) -> str:
    """By how much a figure is less or more than another."""
    percent = 100 * (ours / theirs - 1)
    return f"{abs(percent):.1f} % {'more' if percent > 0 else 'less'}"


def took(results: Sequence[Costed]) -> str:
    """The CPU time of simulations, as a page tells it."""
    seconds = sum(result.cpu_seconds for result in results)
    return f"{seconds:.0f} CPU seconds" if seconds < 100 else f"{seconds / 60:.0f} CPU minutes"


def write_wrapped(name: str, parts: Sequence[str]) -> None:
    """Write docs/results/NAME.md, its prose wrapped: figures in it change how long its lines are."""
    blocks = [block for part in parts for block in part.split("\n\n")]
    write_page(
        name, [block if block[0] in "|#!`" and not _is_text(block) else _wrapped(block) for block in blocks]
    )


def _is_text(block: str) -> bool:
    return block[0] == "`" and not block.startswith("```")


def _wrapped(block: str) -> str:
    items = "\n".join(block.splitlines()).split("\n- ")
    heads = ["", *["- "] * (len(items) - 1)]
    lines = []
    for head, item in zip(heads, items, strict=True):
        indent = "  " if head or item.startswith("- ") else ""
        lines.append(fill(head + item, 110, subsequent_indent=indent, break_on_hyphens=False))
    return "\n".join(lines)
