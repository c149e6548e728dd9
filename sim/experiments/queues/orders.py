"""Which order of the queue saves most at equal delay?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from sim.engines.array_engine import simulate
from sim.experiments.points import Curve, cost_at, falling, point_of
from sim.experiments.shared import PHILLY, RESULTS, SHARED, SMALL, doubling, shared_trace, table
from sim.spec import Spec
from sim.trace import Floats, Trace
from starburst.policy.ordering import ORDERS, Candidate, Order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMMAND = "python -m sim.experiments.queues.orders"
#: Budgets of every curve, percent.
GRID = tuple(float(percent) for percent in np.geomspace(0.5, 300, 60))
#: Increases of mean JCT at which the curves are compared, percent.
INCREASES = (2.0, 5.0, 10.0, 20.0, 40.0)
#: A user's past demand counts half after so many hours.
HALF_LIFE_H = 24.0
#: The existing order that all are compared with, and the names of those that only live here.
BASE = "fifo"


@dataclass(frozen=True, slots=True)
class OrderCase:
    """A trace, its cluster, and who sent each job, if that is known."""

    title: str
    trace: Trace
    spec: Spec
    users: list[str] | None = None


def orders(case: OrderCase) -> dict[str, Order]:
    """What is tried. All but the first three need what the registry's orders do not see: the whole job."""
    trace = case.trace
    area = trace.gpus * trace.duration_h
    tried: dict[str, Order] = {
        "fifo": ORDERS["fifo"],
        "sjf": ORDERS["sjf"],
        "edf": ORDERS["edf"],
        "leaves first": lambda job: job.deadline,
        "least slack": lambda job: job.deadline - job.runtime_s,
        "most GPU-hours": by_job(-area),
        "fewest GPU-hours": by_job(area),
        "most GPUs": by_job(-trace.gpus.astype(float)),
        "fewest GPUs": by_job(trace.gpus.astype(float)),
        "last in, first out": lambda job: -job.seq,
    }
    if case.users is not None:
        tried["fair share"] = by_job(past_demand(trace, case.users))
    return tried


def by_job(key: Floats) -> Order:
    """An order by a column of the trace. The array engine asks about all jobs at once, as they came."""

    def order(job: Candidate) -> float:
        assert np.shape(job.seq) == key.shape
        return key  # type: ignore[return-value]  # a column for a number, as columns.py has it

    return order


def past_demand(trace: Trace, users: list[str]) -> Floats:
    """GPU-hours that the job's user asked for before, older ones faded by half every HALF_LIFE_H."""
    demand: dict[str, tuple[float, float]] = {}
    found = np.zeros(len(trace))
    for index, user in enumerate(users):
        then_h, before = demand.get(user, (0.0, 0.0))
        now_h = float(trace.arrival_h[index])
        found[index] = before * 0.5 ** ((now_h - then_h) / HALF_LIFE_H)
        demand[user] = (now_h, found[index] + float(trace.gpus[index] * trace.duration_h[index]))
    return found


def curve(case: OrderCase, order: Order) -> Curve:
    """Every budget of the grid under one order."""
    name = "tried in an experiment"
    ORDERS[name] = order
    try:
        specs = [replace(case.spec, order=name, budget_percent=percent) for percent in GRID]
        runs = [simulate(case.trace, case.trace.duration_h, spec) for spec in specs]
    finally:
        del ORDERS[name]
    return falling([point_of(case.trace, spec, run) for spec, run in zip(specs, runs, strict=True)])


def rows(curves: dict[str, Curve]) -> Iterator[tuple[object, ...]]:
    """A row per order: change of cost against FIFO at equal increase, percent."""
    base = curves[BASE]
    for name, found in curves.items():
        changes = [100 * (cost_at(found, at) / cost_at(base, at) - 1) for at in INCREASES]
        yield name, *(f"{change:+.1f} %" for change in changes), f"**{np.mean(changes):+.1f} %**"


def cases() -> Iterator[OrderCase]:
    """The traces at hand."""
    for name, warmup in (("phillylike_r24", 500), ("tab4_s1.0", 100)):
        trace = shared_trace(f"starburst/{name}.csv")
        if trace is not None:
            yield OrderCase(f"{name}: 4 × 8 GPUs, best-fit", trace, replace(SMALL, warmup=warmup))
    yield OrderCase("Load .75, doubled half-way (seed 1)", doubling(1), replace(SMALL, warmup=500))
    philly = shared_trace("philly.csv")
    if philly is not None:
        yield OrderCase("philly: 64 × 8 GPUs, first-fit", philly, PHILLY, philly_users())


def philly_users() -> list[str]:
    """The virtual cluster of every job of the Philly trace."""
    with (SHARED / "cases" / "philly.csv").open(encoding="utf-8") as lines:
        column = next(lines).strip().split(",").index("cluster")
        return [line.strip().split(",")[column] for line in lines]


def main() -> None:
    """Run all, write the page and the figure."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    head = ("order", *(f"at +{at:g} %" for at in INCREASES), "mean")
    parts = [INTRODUCTION, "![Cost against increase](orders.svg)"]
    for axes, case in zip(figure.subplots(2, 2).flat, cases(), strict=False):
        print(case.title, flush=True)
        curves = {name: curve(case, order) for name, order in orders(case).items()}
        parts += [f"## {case.title}", table(head, rows(curves))]
        draw(axes, case.title, curves)
    figure.savefig(RESULTS / "orders.svg", metadata={"Date": None})
    (RESULTS / "orders.md").write_text("\n\n".join([*parts, READING]) + "\n", encoding="utf-8")


def draw(axes: Axes, title: str, curves: dict[str, Curve]) -> None:
    """The curves of one trace."""
    for name, (increases, costs) in curves.items():
        shown = increases <= 50
        width = 2.5 if name == BASE else 1.0
        axes.plot(increases[shown], costs[shown], label=name, linewidth=width)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("increase of mean JCT over No-Wait (%)")
    axes.set_ylabel("cloud cost (GPU-hours)")
    axes.legend(fontsize=7)


INTRODUCTION = f"""# Orders of the queue

`{COMMAND}`: Compute-Wait, open loop, out of order, right estimates; {len(GRID)} budgets
from .5 to 300 % for every order. Entries are the change of cloud GPU-hours against FIFO at equal increase of
mean JCT over No-Wait, read off curves that are made to fall (isotonic regression); the last column is their
mean. "Leaves first" is earliest deadline; "least slack" is deadline less run time (now is the same for all);
"fair share" puts users first who asked for the fewest GPU-hours lately (virtual clusters of philly; half-life
{HALF_LIFE_H:g} h). Under Compute-Wait an hour of wait is worth the same for all jobs, so an order by cost per
wait is FIFO."""

READING = """## Reading it

- None of those tried is added to the registry: none lowers cost on every trace, and what it does on one it
  does the other way round on another. FIFO stays the default.
- phillylike: nothing beats FIFO by more than the scatter of its curve (some 3 % of cost) at more than one
  increase. From +20 % on, orders that put short or small jobs or early deadlines first cost 27 to 115 % more.
- philly: the same orders cost 3 to 8 % more at +5 %, but about half at +40 % (sjf, edf, least slack, leaves
  first -47 to -48 %, fewest GPU-hours -51 %). sjf and edf exist, so whoever allows that much on such a
  cluster has the gain already; the others add nothing to them there.
- "Most GPUs" is the only one that is never far off outside tab4: -2 to -5 % on philly up to +10 %, between
  -2.5 and +5 % on phillylike, within 1 % on the doubled load. It helps on one trace and not on the others,
  so it is not kept; where most jobs are of one size it deserves a second look.
- Fair share costs nothing on average (from -13 to +8 %): it can be had for fairness, not for saving.
- tab4 has 301 jobs that count; its entries jump with single large jobs and decide nothing.
- A GPU-hour kept at home saves a GPU-hour of cloud, whichever job it is of, so cost density alone cannot
  choose between jobs; an order acts by how well it packs and by whom it delays."""


if __name__ == "__main__":
    main()
