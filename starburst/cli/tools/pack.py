"""`starburst pack`: which machines to rent for a list of tasks, and how near to the cheapest that is."""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.readers.files import open_text
from sim.readers.packing import PREFIX, read_catalog, read_tasks, read_throughput
from starburst.app.errors import UserError
from starburst.cli.output import Format, OutputOption, print_data
from starburst.cli.tools.traces import at_work
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.policy.packing.classes import classes_of
from starburst.policy.packing.covering.cover import Limits
from starburst.policy.packing.covering.offline import least_rent
from starburst.policy.packing.plan import NOTHING, Packer, Plan, Situation, TaskKey
from starburst.policy.packing.registry import PACKERS
from starburst.policy.packing.registry import packer as named
from starburst.policy.packing.throughput import NO_INTERFERENCE, Throughput, throughputs

OPTIMAL = "optimal"


@dataclass(frozen=True, slots=True)
class PackReport:
    """A plan and what the command tells of it."""

    plan: Plan
    packer: str
    #: Task → its name in the file.
    names: dict[TaskKey, str]
    lower_bound: Money
    #: Worth of the throughput that tasks lose, dollars per hour; None if no table was given.
    lost: Money | None
    cpu_seconds: float

    @property
    def gap(self) -> float:
        """The share of the cost that could be saved at most."""
        cost = self.plan.cost.micro_usd
        return (cost - self.lower_bound.micro_usd) / cost if cost else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Its keys are a promise (docs/cli.md)."""
        told = {
            "packer": self.packer,
            "cost_per_hour": float(self.plan.cost.dollars),
            "lower_bound": float(self.lower_bound.dollars),
            "gap": self.gap,
            "instances": len(self.plan.launches),
            "tasks": len(self.names),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "unplaced": [{"task": self.names[t.key], "reason": why} for t, why in self.plan.unplaced],
            "assignment": [
                {"offer": launch.offer.name, "tasks": [self.names[task.key] for task in launch.tasks]}
                for launch in self.plan.launches
            ],
        }
        if self.lost is not None:
            told["lost_per_hour"] = float(self.lost.dollars)
        return told


def pack(
    tasks: Annotated[Path, typer.Argument(metavar="TASKS", help="CSV: task_id, gpu, cpu, ram_gb, …")],
    *,
    catalog: Annotated[
        Path, typer.Option(metavar="TYPES", help="CSV: name, family, gpu, cpu, ram_gb, usd_per_hour.")
    ],
    packer: Annotated[
        str, typer.Option(metavar="|".join(dict.fromkeys((OPTIMAL, *PACKERS))), help="Policy that packs.")
    ] = OPTIMAL,
    throughput: Annotated[
        Path | None, typer.Option(metavar="F", help="CSV: workload, colocated_with, throughput.")
    ] = None,
    cpu_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The catalog's column of CPUs [cpu, else vcpu].")
    ] = None,
    demand_column_prefix: Annotated[
        str, typer.Option(metavar="P", help="Columns P… of TASKS are CPUs by family.")
    ] = PREFIX,
    output: OutputOption = Format.TABLE,
) -> None:
    """Choose machines for a list of tasks. Says how near to the cheapest choice that is.

    Exit code 1 says that no offer holds some of them.
    """
    chosen = _packer(packer)
    offers = tuple(machine.offer for machine in read_catalog(catalog, cpu_column=cpu_column))
    listed = tuple(read_tasks(tasks, prefix=demand_column_prefix))
    table = NO_INTERFERENCE if throughput is None else _table(throughput, tasks, listed)
    names = dict(zip((task.key for task in listed), _task_ids(tasks), strict=True))
    with at_work(f"packing {len(listed):,} tasks"):
        packing = packed(Situation(listed, offers, throughput=table), chosen, packer, names)
    if output.for_people:
        print("\n".join(summary(packing)))
    elif output is Format.NAME:
        print(f"packing/{packer}")
    else:
        print_data(packing.as_dict(), output)
    if packing.plan.unplaced:
        raise typer.Exit(1)


def packed(situation: Situation, chosen: Packer, name: str, names: dict[TaskKey, str]) -> PackReport:
    """Let a packer plan and compare it with what is possible; only the former counts as its time."""
    begin = time.process_time()
    plan = chosen.plan(situation)
    seconds = time.process_time() - begin
    least = plan.lower_bound
    if least is None:
        least = Money(least_rent(classes_of(situation), Limits()))
    lost = None if situation.throughput is NO_INTERFERENCE else _lost(situation, plan)
    return PackReport(plan, name, names, least, lost, seconds)


def summary(packing: PackReport) -> Iterator[str]:
    """For people: offers, what they cost and how good that is, and tasks that fit nothing."""
    plan = packing.plan
    counts = Counter(launch.offer.name for launch in plan.launches)
    held = Counter(launch.offer.name for launch in plan.launches for _ in launch.tasks)
    offers = {launch.offer.name: launch.offer for launch in plan.launches}
    width = max(map(len, [*offers, "OFFER"]))
    yield f"{'OFFER':<{width}}{'INSTANCES':>11}{'TASKS':>9}{'$/HOUR':>14}"
    for name, offer in sorted(offers.items()):
        price = (offer.price_per_hour or NOTHING) * counts[name]
        yield f"{name:<{width}}{counts[name]:>11,}{held[name]:>9,}{str(price).removeprefix('$'):>14}"
    yield ""
    placed = len(packing.names) - len(plan.unplaced)
    yield f"packer       {packing.packer}, {packing.cpu_seconds:.3g} CPU s"
    yield f"cost         {plan.cost} per hour; {len(plan.launches):,} instances, {placed:,} tasks"
    if packing.lost is not None:
        yield f"slow-downs   worth {packing.lost} per hour"
    near = "which makes it the optimum" if packing.gap <= 0 else f"{packing.gap:.2%} less"
    yield f"lower bound  {packing.lower_bound} per hour, {near}"
    for task, why in plan.unplaced:
        yield f"unplaced     {packing.names[task.key]}: {why}"


def _packer(name: str) -> Packer:
    try:
        return named(name)
    except ValueError:
        known = ", ".join(dict.fromkeys((OPTIMAL, *PACKERS)))
        raise UserError(f"--packer: {name!r}: is no packer; there are {known}") from None


def _table(file: Path, tasks: Path, listed: tuple[Task, ...]) -> Throughput:
    """The throughput table, if it says anything about the tasks."""
    if not all(task.workload for task in listed):
        raise UserError(f"--throughput: {tasks}: a task has no workload; fill the column workload")
    return read_throughput(file)


def _task_ids(file: Path) -> list[str]:
    """The tasks' names, in the order of the file."""
    with open_text(file) as lines:
        rows = [row for row in csv.reader(lines) if row]
    at = [name.strip() for name in rows[0]].index("task_id")
    return [row[at].strip() for row in rows[1:]]


def _lost(situation: Situation, plan: Plan) -> Money:
    """What tasks lose of their reservation prices by company."""
    classes = classes_of(situation)
    lost = 0.0
    for launch in plan.launches:
        speeds = throughputs(situation.throughput, [task.workload for task in launch.tasks])
        prices = (int(classes.job_price[classes.of[task.key]]) for task in launch.tasks)
        lost += sum((1.0 - speed) * price for speed, price in zip(speeds, prices, strict=True))
    return Money(round(lost))
