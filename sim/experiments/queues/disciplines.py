"""Do BF-J/S, VQS or VQS-BF in place of FIFO + out-of-order move the cost–JCT curve?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import process_time

import numpy as np

from sim.engines import array_engine, core_engine
from sim.experiments.curves import Panel, draw
from sim.experiments.points import Curve, Point, cost_at, falling, point_of
from sim.experiments.published import command, progress, write_page
from sim.experiments.shared import PHILLY, SMALL, doubling, shared_trace, table
from sim.outcomes import Outcomes
from sim.spec import Spec
from sim.trace import Trace
from starburst.policy.disciplines.registry import DISCIPLINES

COMMAND = "python -m sim.experiments.queues.disciplines"
#: Nodes of 8 GPUs → the paper's load of Philly on them.
LOADS = {84: 0.67, 64: 0.88, 56: 1.0}
#: Budgets of the disciplines; the array engine does FIFO, so its curve has many more. Percent.
BUDGETS = (2.0, 5.0, 12.0, 25.0, 60.0)
GRID = tuple(float(percent) for percent in np.geomspace(0.5, 250, 40))
#: The generated trace: budgets and seeds.
FEW_BUDGETS, SEEDS = (5.0, 25.0), (1, 2, 3)
#: What the disciplines are compared with: FIFO out of order, and where it puts a job.
PLACED = ("first-fit", "best-fit")
#: GPUs of a job, from – to.
SIZES = ((1, 1), (2, 4), (5, 8), (9, 10**6))
#: At which budget, percent, the sizes are told apart.
LOOKED_AT = 25.0


@dataclass(frozen=True, slots=True)
class Tried:
    """One run under a discipline, or FIFO at the same budget."""

    spec: Spec
    point: Point
    outcomes: Outcomes
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """All runs on one trace and cluster."""

    trace: Trace
    #: FIFO's points by placement.
    fifo: Mapping[str, Sequence[Point]]
    #: By order: runs at rising budgets; "fifo" only at LOOKED_AT.
    runs: Mapping[str, Sequence[Tried]]


def explore(trace: Trace, base: Spec, budgets: Sequence[float]) -> Found:
    """FIFO by the array engine on the whole grid, the disciplines by the core at these budgets."""
    fifo = {
        placed: [
            point_of(trace, spec, array_engine.simulate(trace, trace.duration_h, spec))
            for spec in (replace(base, binpack=placed, budget_percent=percent) for percent in GRID)
        ]
        for placed in PLACED
    }
    runs = {"fifo": [tried(trace, replace(base, budget_percent=LOOKED_AT))]}
    for order in DISCIPLINES:
        specs = (replace(base, order=order, budget_percent=percent) for percent in budgets)
        runs[order] = [tried(trace, spec) for spec in specs]
    return Found(trace, fifo, runs)


def tried(trace: Trace, spec: Spec) -> Tried:
    """A run through the core."""
    began = process_time()
    outcomes = core_engine.simulate(trace, trace.duration_h, spec)
    took = process_time() - began
    progress(f"{spec.title}, {spec.nodes} nodes: {len(trace) / took:,.0f} jobs per CPU second")
    return Tried(spec, point_of(trace, spec, outcomes), outcomes, took)


def changes(found: Found, order: str) -> list[list[float]]:
    """Cost of an order's runs against FIFO's curve at equal increase, percent, per placement of FIFO."""
    curves: list[Curve] = [falling(list(found.fifo[placed])) for placed in PLACED]
    return [
        [100 * (run.point.cost / cost_at(curve, run.point.increase) - 1) for curve in curves]
        for run in found.runs[order]
    ]


def rows(found: Found) -> Iterator[tuple[object, ...]]:
    """A row per run of a discipline."""
    for order, live in DISCIPLINES.items():
        for run, (first, best) in zip(found.runs[order], changes(found, order), strict=True):
            point = run.point
            yield (
                live.title,
                f"{run.spec.budget_percent:g} %",
                f"{point.increase:.1f} %",
                f"{point.cost:,.0f}",
                f"**{first:+.1f} %**",
                f"{best:+.1f} %",
            )


def by_size(found: Found) -> Iterator[tuple[object, ...]]:
    """A row per order: of each size, the share that leaves and the mean wait of those that stay."""
    trace = found.trace
    for order, runs in found.runs.items():
        run = next(run for run in runs if run.spec.budget_percent == LOOKED_AT)
        counted = np.zeros(len(trace), bool)
        counted[run.spec.warmup : len(trace) - run.spec.warmup + 1] = True
        cells = []
        for least, most in SIZES:
            those = counted & (trace.gpus >= least) & (trace.gpus <= most)
            home = those & ~run.outcomes.in_cloud
            leave = f"{100 * (1 - home.sum() / those.sum()):.1f} %" if those.any() else "–"
            cells += [leave, f"{np.mean(run.outcomes.wait_h[home]):.2f} h" if home.any() else "–"]
        yield _title(order), *cells


def speeds(found: Found) -> Iterator[tuple[object, ...]]:
    """A row per order: jobs per CPU second at LOOKED_AT."""
    for order, runs in found.runs.items():
        run = next(run for run in runs if run.spec.budget_percent == LOOKED_AT)
        yield _title(order), f"{len(found.trace) / run.cpu_s:,.0f}"


def _title(order: str) -> str:
    return DISCIPLINES[order].title if order in DISCIPLINES else "FIFO, out of order"


def panel(found: Found) -> Panel:
    """The curves of one cluster."""
    lines = {
        f"FIFO, {placed}": [
            (p.increase, p.cost) for p in sorted(points, key=lambda p: p.increase)[::3] if p.increase < 50
        ]
        for placed, points in found.fifo.items()
    }
    for order, live in DISCIPLINES.items():
        lines[live.title] = [(run.point.increase, run.point.cost) for run in found.runs[order]]
    return Panel("increase of mean JCT over No-Wait, %", "cloud GPU-hours", lines, {})


def commands(nodes: int) -> str:
    """The command line of a whole table."""
    base = command(replace(PHILLY, nodes=nodes), "philly.csv")
    budgets = ",".join(f"{percent:g}" for percent in BUDGETS)
    orders = ",".join(["fifo", *DISCIPLINES])
    return f"```console\n$ {base} --sweep order={orders} --sweep budget={budgets}\n```"


def generated(drawn: Mapping[int, Found]) -> Iterator[tuple[object, ...]]:
    """A row per discipline and budget: change against FIFO, best-fit, per seed."""
    for order, live in DISCIPLINES.items():
        for number, percent in enumerate(FEW_BUDGETS):
            against = [changes(found, order)[number][1] for found in drawn.values()]
            increases = [found.runs[order][number].point.increase for found in drawn.values()]
            yield (
                live.title,
                f"{percent:g} %",
                " · ".join(f"{increase:.1f} %" for increase in increases),
                " · ".join(f"{change:+.1f} %" for change in against),
                f"**{np.mean(against):+.1f} %**",
            )


def collect() -> tuple[dict[int, Found], dict[int, Found]]:
    """All runs: on Philly by nodes, on the generated trace by seed."""
    philly = shared_trace("philly.csv")
    if philly is None:
        raise SystemExit(1)
    real = {nodes: explore(philly, replace(PHILLY, nodes=nodes), BUDGETS) for nodes in LOADS}
    drawn = {seed: explore(doubling(seed), replace(SMALL, warmup=500), FEW_BUDGETS) for seed in SEEDS}
    return real, drawn


def write(real: Mapping[int, Found], drawn: Mapping[int, Found]) -> None:
    """The page and the figure."""
    head = ("order", "P", "increase", "cloud GPU-h", "against FIFO, first-fit", "against FIFO, best-fit")
    parts = [INTRODUCTION, draw("disciplines", [panel(found) for found in real.values()]), FIGURE]
    for nodes, found in real.items():
        parts += [f"## Philly, {nodes} × 8 GPUs (s = {LOADS[nodes]:g})", table(head, rows(found))]
        parts.append(commands(nodes))
    sizes = [cell for least, most in SIZES for cell in (_span(least, most), "wait")]
    parts += [BY_SIZE, table(("order", *sizes), by_size(real[64]))]
    seeds = f"against FIFO, seeds {', '.join(map(str, SEEDS))}"
    parts += [GENERATED, table(("order", "P", "increase", seeds, "mean"), generated(drawn))]
    parts += [SPEED, table(("order", "jobs per CPU second"), speeds(real[64])), READING]
    write_page("disciplines", parts)


def _span(least: int, most: int) -> str:
    span = f"{least}" if least == most else f"{least} – {most}" if most < 10**6 else f"{least} and more"
    return f"{span} GPU{'s' * (most > 1)}: leave"


def main() -> None:
    """Run all, write the page and the figure."""
    write(*collect())


INTRODUCTION = f"""# Disciplines with a proven throughput in front of the cloud

`{COMMAND}`: Compute-Wait, open loop, right estimates; jobs leave when
their wait is over, as ever. The queue is ordered and placed by a discipline (`--order bf-js`, `vqs`,
`vqs-bf`; see [docs/disciplines.md](../disciplines.md)) instead of FIFO out of order."""
FIGURE = f"""Lower and further left is better. FIFO is run at {len(GRID)} budgets, of which every third is
drawn, the disciplines at {len(BUDGETS)}. "Against FIFO" is the change of cost at the same increase of
mean JCT over No-Wait, read off FIFO's curve made to fall (isotonic regression); FIFO's own points lie some
3 % off that curve. A discipline also says where a job goes, so it is compared with FIFO under both
placements."""
BY_SIZE = f"""## Who pays for it

Philly, 64 × 8, P = {LOOKED_AT:g} %. Per number of GPUs: the share of jobs that leaves for the cloud, and the
mean wait of those that run at home."""
GENERATED = """## Generated jobs, load .75 that doubles half-way

4 × 8 GPUs, 12,000 Poisson arrivals of heavy-tailed jobs of 1, 2, 4 and 8 GPUs, as in [orders](orders.md);
warm-up 500, three seeds. Against FIFO, out of order, best-fit, at equal increase. Two other generated loads,
Philly's jobs drawn anew at s = .95 and 1.1, say nothing: so little left for the cloud there that shares swung
from -94 to +1,357 %; VQS was the worst of them too."""
SPEED = f"""## Speed

The core on Philly, 64 × 8, P = {LOOKED_AT:g} %; plain Python, one process on a busy machine:"""
READING = """## Reading it

- **BF-J/S moves the curve a little.** At equal delay it costs less than FIFO out of order, first-fit: 2 to
  12 % less at s = .67 up to +3.6 % of delay, 2 to 8 % less at s = .88 up to +8 %, 2 to 5 % less at s = 1 at
  every budget. Part of that is where it puts jobs: against FIFO with best-fit it is even to 6 % less there.
  Allowed more delay it is even, or worse (+2 to +10 % at s = .67 and .88 with P = 60 %). FIFO's own scatter
  is 3 %, so the best points are two to four times that, and most are near it.
- "Most GPUs first" does the same to Philly in [orders](orders.md): 2 to 5 % less up to +10 % of delay.
- **VQS-BF** costs 3 to 14 % more at s = .88 and 1, and about as much as FIFO, first-fit, at s = .67. **VQS**
  costs 8 to 64 % more: it leaves room empty on purpose, and what waits beside it is paid for in the cloud. A
  proven throughput is that of a queue nobody leaves; here jobs leave before it can grow.
- The generated jobs agree, over three seeds: BF-J/S -2.3 to 0 %, VQS-BF -1.2 to +2.9 %, VQS +25 to +34 %.
- **Large-first is paid for by small jobs.** Under BF-J/S 5 points fewer of the jobs of 5 to 8 GPUs leave, and
  2 points more of those of one GPU and of 2 to 4. Under VQS and VQS-BF it is the other way round: the sizes
  that most wait with, the small ones, stay. Deadlines bound it either way; where nobody may leave
  ([random requirements](random-requirements.md), Philly) BF-J/S ends with a longer queue than strict FIFO.
- **Advice:** FIFO out of order stays the default. Of the disciplines BF-J/S is the one to try, on a busy
  cluster (s = .88 and more) and with a budget that delays jobs by 10 % or less. Neither VQS nor VQS-BF is
  advised."""


if __name__ == "__main__":
    main()
