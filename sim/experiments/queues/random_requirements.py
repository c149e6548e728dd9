"""Queue disciplines with a proven throughput, in the slotted model they were published with.

Source: Psychas and Ghaderi, "Scheduling Jobs with Random Resource Requirements in Computing Clusters"
(INFOCOM 2019), section VII.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import process_time

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sim.experiments.shared import RESULTS, shared_trace, table
from sim.reports.figures import MARKS
from sim.reports.gantt import COLOURS
from sim.slotted.run import Outcome, run
from sim.slotted.workload import Ints, SlottedWorkload, fixed, geometric, poisson
from starburst.policy.disciplines.best_fit import BestFitBoth, BestFitJobs, BestFitServers
from starburst.policy.disciplines.discipline import Make
from starburst.policy.disciplines.fifo import FifoFirstFit
from starburst.policy.disciplines.partition import levels_for
from starburst.policy.disciplines.scores import largest_share
from starburst.policy.disciplines.vqs import VirtualQueues
from starburst.policy.disciplines.vqs_bf import VirtualQueuesBestFit

COMMAND = "python -m sim.experiments.queues.random_requirements"
SEED = 1
#: Units of the capacity of a server, where sizes are drawn.
FINE = 100_000
#: A server whose configuration weighs less than this share of the heaviest is stalled.
STALL = 0.9
INTENSITIES = (0.90, 0.92, 0.94, 0.96, 0.98, 0.99)
SCALINGS = (1.0, 1.2, 1.4, 1.6)

Line = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class TrafficPanel:
    """Axes with a line per discipline."""

    title: str
    x: str
    lines: Mapping[str, Line]
    log: bool = False


def published(levels: int) -> dict[str, Make]:
    """The disciplines the paper compares, for a partition with J levels."""
    return {
        "FIFO-FF": FifoFirstFit,
        "BF-J/S": BestFitBoth,
        "VQS": lambda servers, capacity: VirtualQueues(servers, capacity, levels=levels),
        "VQS-BF": lambda servers, capacity: VirtualQueuesBestFit(servers, capacity, levels=levels),
    }


def stalling(levels: int) -> dict[str, Make]:
    """The same with the stalling rule of section VIII."""
    return {
        "BF-J/S, stalling": lambda servers, capacity: BestFitBoth(servers, capacity, stall=True),
        "VQS-BF, stalling": lambda servers, capacity: VirtualQueuesBestFit(
            servers, capacity, levels=levels, stall=STALL
        ),
    }


def two_sizes(
    sizes: tuple[int, int], shares: tuple[float, float], rate: float, slots: int, *, geometric_service: bool
) -> SlottedWorkload:
    """Poisson arrivals of two sizes for servers of capacity 10, that run for 100 slots (on average)."""
    rng = np.random.default_rng(SEED)
    arrival = poisson(rng, rate, slots)
    size = rng.choice(sizes, size=len(arrival), p=shares)
    service = geometric(rng, 100, len(arrival)) if geometric_service else fixed(100, len(arrival))
    return SlottedWorkload(arrival, size, service, 10)


def uniform(least: float, most: float, intensity: float, jobs: int) -> tuple[SlottedWorkload, int]:
    """For 5 servers: sizes uniform between two shares, λ = α L μ / E[R]; and the slots it spans."""
    rng = np.random.default_rng(SEED)
    rate = intensity * 5 * 0.01 / ((least + most) / 2)
    slots = round(jobs / rate)
    arrival = poisson(rng, rate, slots)
    size = rng.integers(round(least * FINE), round(most * FINE) + 1, len(arrival))
    return SlottedWorkload(arrival, size, geometric(rng, 100, len(arrival)), FINE), slots


def made_up(tasks: int, servers: int) -> SlottedWorkload:
    """Tasks in the shape of the published trace, in slots of 100 ms over 1.5 days; MARGINALS says how."""
    rng = np.random.default_rng(SEED)
    per_job = np.minimum(np.ceil(rng.pareto(1.1, tasks // 4) + 1), 2_000).astype(np.int64)
    per_job = per_job[: int(np.searchsorted(np.cumsum(per_job), tasks)) + 1]
    jobs = len(per_job)
    job = np.repeat(np.arange(jobs), per_job)[:tasks]
    cpu = levels_of(rng.lognormal(np.log(0.03), 0.9, jobs), 400)
    memory = levels_of(rng.lognormal(np.log(0.02), 1.1, jobs), 700)
    size = np.array(
        [largest_share((c, m), (400, 700), FINE) for c, m in zip(cpu.tolist(), memory.tolist(), strict=True)]
    )[job]
    day_s = 36 * 3600.0
    arrival_s = np.sort(rng.uniform(0, day_s, jobs))[job] + rng.exponential(20, len(job))
    duration_s = np.minimum(rng.lognormal(0, 1.2, jobs)[job] * rng.lognormal(0, 0.4, len(job)), 60)
    duration_s *= 0.6 * servers * FINE * day_s / float(np.sum(duration_s * size))
    order = np.argsort(arrival_s, kind="stable")
    slot = (arrival_s[order] * 10).astype(np.int64)
    service = np.maximum(np.ceil(duration_s[order] * 10), 1).astype(np.int64)
    return SlottedWorkload(slot, size[order], service, FINE)


def levels_of(shares: np.ndarray[tuple[int], np.dtype[np.float64]], levels: int) -> Ints:
    """Shares of a server as so many distinct values, in steps of one level; at most a whole server."""
    return np.clip(np.ceil(shares * levels), 1, levels).astype(np.int64)


def philly() -> SlottedWorkload | None:
    """Jobs of the Philly trace that fit a server of 8 GPUs, in slots of a second."""
    trace = shared_trace("philly.csv")
    if trace is None:
        return None
    fits = trace.gpus <= 8
    arrival = np.round(trace.arrival_h[fits] * 3600).astype(np.int64)
    service = np.maximum(np.round(trace.duration_h[fits] * 3600), 1).astype(np.int64)
    return SlottedWorkload(arrival, trace.gpus[fits].astype(np.int64), service, 8)


def faster(workload: SlottedWorkload, scaling: float) -> SlottedWorkload:
    """The same jobs in less time: traffic scaling."""
    arrival = (workload.arrival / scaling).astype(np.int64)
    return SlottedWorkload(arrival, workload.size, workload.service, workload.capacity)


def trajectories(
    workload: SlottedWorkload, slots: int, tried: Mapping[str, Make]
) -> tuple[dict[str, Line], Iterator[tuple[object, ...]]]:
    """Queue over time on one server, and a row per discipline: average, and at quarters of the run."""
    outcomes = {name: run(workload, make(1, 10), slots=slots, samples=41) for name, make in tried.items()}
    lines = {
        name: [(float(slot) / 1e6, float(queue)) for slot, queue in zip(o.sampled, o.queue, strict=True)]
        for name, o in outcomes.items()
    }
    rows = (
        (name, f"{o.mean_queue:,.0f}", *(f"{o.queue[at]:,}" for at in (10, 20, 30, 40)))
        for name, o in outcomes.items()
    )
    return lines, rows


def averages(
    workloads: Mapping[float, tuple[SlottedWorkload, int]], servers: int, tried: Mapping[str, Make]
) -> tuple[dict[str, Line], list[tuple[object, ...]]]:
    """Average queue per abscissa after a warm-up of a fifth, and a row per discipline."""
    lines: dict[str, Line] = {}
    for name, make in tried.items():
        lines[name] = []
        for at, (workload, slots) in workloads.items():
            outcome = timed(name, workload, make, servers, slots)[0]
            lines[name].append((at, outcome.mean_queue))
    return lines, [(name, *(f"{queue:,.1f}" for _, queue in line)) for name, line in lines.items()]


def timed(
    name: str, workload: SlottedWorkload, make: Make, servers: int, slots: int, *, warmup: float = 0.2
) -> tuple[Outcome, float]:
    """A run and the CPU seconds it took."""
    before = process_time()
    outcome = run(workload, make(servers, workload.capacity), slots=slots, warmup=int(warmup * slots))
    took = process_time() - before
    print(f"{name}: {len(workload)} jobs, {took:.1f} s, average queue {outcome.mean_queue:.1f}", flush=True)
    return outcome, took


def scaled(
    workload: SlottedWorkload, servers: int, tried: Mapping[str, Make], scalings: Sequence[float]
) -> tuple[dict[str, Line], Iterator[tuple[object, ...]], dict[str, list[float]]]:
    """Average queue per traffic scaling until the last arrival, a row per discipline, and the CPU seconds."""
    lines: dict[str, Line] = {name: [] for name in tried}
    seconds: dict[str, list[float]] = {name: [] for name in tried}
    for scaling in scalings:
        jobs = faster(workload, scaling)
        slots = int(jobs.arrival[-1]) + 1
        for name, make in tried.items():
            outcome, took = timed(f"{name} × {scaling:g}", jobs, make, servers, slots, warmup=0.0)
            lines[name].append((scaling, outcome.mean_queue))
            seconds[name].append(took)
    rows = ((name, *(f"{queue:,.1f}" for _, queue in line)) for name, line in lines.items())
    return lines, rows, seconds


def load(workload: SlottedWorkload, servers: int) -> float:
    """Work that arrives over what the servers could do until the last arrival."""
    work = float(np.sum(workload.size * workload.service))
    return work / (servers * workload.capacity * (int(workload.arrival[-1]) + 1))


def busiest_tenth(workload: SlottedWorkload, servers: int) -> float:
    """The load by the work that arrives in the tenth of the time in which most does."""
    slots = int(workload.arrival[-1]) + 1
    work = np.bincount(workload.arrival * 10 // slots, workload.size * workload.service)
    return float(np.max(work)) / (servers * workload.capacity * slots / 10)


def draw(name: str, panels: Sequence[TrafficPanel]) -> str:
    """Write docs/results/NAME.svg; says how a page shows it."""
    figure = Figure(figsize=(4.3 * len(panels), 3.7), layout="constrained")
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for label, line in panel.lines.items():
            number = names.index(label)
            axes.plot(
                *zip(*line, strict=True),
                label=label,
                color=COLOURS[number],
                marker=MARKS[number],
                markersize=4,
            )
        axes.set_title(panel.title, fontsize=9)
        axes.set_xlabel(panel.x)
        axes.set_ylabel("waiting jobs")
        axes.grid(color="#e6e6e6")
        axes.spines[["top", "right"]].set_visible(False)
        if panel.log:
            axes.set_yscale("symlog", linthresh=1)
            axes.set_ylim(bottom=0)
        axes.legend(fontsize=7, frameon=False)
    with mpl.rc_context({"svg.hashsalt": "starburst", "svg.fonttype": "none"}):
        figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    return f"![{name}]({name}.svg)"


def stability() -> list[str]:
    """The two examples in which one discipline is stable and another is not."""
    slots = 4_000_000
    head = ("discipline", "average queue", *(f"at {slots * part / 4e6:g} M slots" for part in (1, 2, 3, 4)))
    small = two_sizes((4, 6), (0.5, 0.5), 0.014, slots, geometric_service=True)
    a, a_rows = trajectories(small, slots, published(levels_for(4, 10)))
    large = two_sizes((2, 5), (2 / 3, 1 / 3), 0.0306, slots, geometric_service=False)
    levels = levels_for(2, 10)
    b, b_rows = trajectories(large, slots, {**published(levels), **stalling(levels)})
    x = "slots (millions)"
    picture = draw(
        "random-requirements-stability",
        [
            TrafficPanel("sizes .4 and .6, geometric service", x, a),
            TrafficPanel("sizes 2 and 5 of 10, fixed service", x, b),
        ],
    )
    return [
        STABILITY,
        picture,
        "Sizes .4 and .6:",
        table(head, a_rows),
        "Sizes 2 and 5 of 10:",
        table(head, b_rows),
    ]


def intensities() -> list[str]:
    """Average queue against traffic intensity for the two uniform distributions."""
    panels, parts = [], [INTENSITY]
    for least, most in ((0.01, 0.19), (0.1, 0.9)):
        workloads = {alpha: uniform(least, most, alpha, 200_000) for alpha in INTENSITIES}
        levels = levels_for(round(least * FINE), FINE)
        lines, rows = averages(workloads, 5, published(levels))
        title = f"sizes uniform on [{least:g}, {most:g}], J = {levels}"
        panels.append(TrafficPanel(title, "traffic intensity α", lines, log=True))
        parts += [f"{title[0].upper()}{title[1:]}:", table(("α", *map(str, INTENSITIES)), rows)]
    return [parts[0], draw("random-requirements-intensity", panels), *parts[1:]]


def traces() -> list[str]:
    """Average queue against traffic scaling, on a million made-up tasks and on Philly."""
    tasks, servers = made_up(1_000_000, 1_000), 1_000
    levels = levels_for(int(np.min(tasks.size)), FINE)
    lines, rows, seconds = scaled(tasks, servers, published(levels), SCALINGS)
    one_sided: dict[str, Make] = {"BF-J": BestFitJobs, "BF-S": BestFitServers}
    _, most, took = scaled(tasks, servers, one_sided, SCALINGS[-1:])
    seconds.update(took)
    panels = [TrafficPanel("a million made-up tasks", "traffic scaling", lines, log=True)]
    scalings = [f"× {scaling:g}" for scaling in SCALINGS]
    parts = [
        MARGINALS.format(load=load(tasks, servers), levels=levels, mean=np.mean(tasks.size) / FINE),
        table(("average queue", *scalings), [*rows, *((name, "", "", "", queue) for name, queue in most)]),
        COST,
        table(("discipline", "CPU s"), ((name, f"{max(took):.1f}") for name, took in seconds.items())),
    ]
    jobs = philly()
    if jobs is not None:
        # Three levels serve every size from an eighth of a server on.
        lines, rows, _ = scaled(jobs, 64, {**published(levels_for(1, 8)), **one_sided}, SCALINGS)
        panels.append(TrafficPanel("philly, 64 servers of 8 GPUs", "traffic scaling", lines, log=True))
        parts += [
            PHILLY.format(jobs=len(jobs), load=load(jobs, 64), busiest=busiest_tenth(jobs, 64)),
            table(("average queue", *scalings), rows),
        ]
    return ["## Traces", draw("random-requirements-traces", panels), *parts]


def main() -> None:
    """Run all, write the page and the figures."""
    parts = [INTRODUCTION, *stability(), *intensities(), *traces(), READING]
    (RESULTS / "random-requirements.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


INTRODUCTION = f"""# Disciplines for random resource requirements

`{COMMAND}` (seed {SEED}; all disciplines get the same jobs).
The slotted model and the experiments of Psychas and Ghaderi, "Scheduling Jobs with Random Resource
Requirements in Computing Clusters" (INFOCOM 2019), section VII: one resource, servers alike, service time
unknown to the scheduler. Proven shares of the largest throughput any policy has: BF-J/S 1/2, VQS and
VQS-BF 2/3. FIFO-FF starts nobody before the first; BF-J passes over who does not fit; BF-J/S and BF-S
take the largest that fits."""

STABILITY = f"""## Who is stable where

One server. Left: sizes .4 and .6 equally likely, .014 arrivals a slot, geometric service of mean 100; VQS
serves at most .0133 a slot, one of each at a time would serve .02. Right: capacity 10, sizes 2 and 5,
twice as many of 2, .0306 arrivals a slot, service of exactly 100; five of 2 and two of 5 in turn would do,
two of 2 and one of 5 serve .03. Stalling: BF-J/S when under half full, VQS-BF when its configuration
weighs less than {STALL:g} of the heaviest."""

INTENSITY = """## Average queue against intensity

Five servers, geometric service of mean 100 slots, λ = α L μ / E[R]; 200,000 jobs, the first fifth of the
time left out of the average. α = 1 bounds what any policy can serve."""

MARGINALS = """The published run took a million tasks of a Google trace: 1.5 days, 1,000 servers, decisions
every 100 ms, size the larger of CPU and memory. That trace is not at hand. From the paper the made-up one
has these numbers, and that CPU requests take some 400 values and memory requests some 700. The rest is
assumed, not published: tasks come in jobs of alike tasks (Pareto, α = 1.1, at most 2,000 a job), at
uniform times, spread over some 20 s; CPU lognormal with median .03 of a server (σ = .9), memory .02 (σ =
1.1), independent; durations lognormal per job (σ = 1.2) and per task (σ = .4), cut at 60 times the median
of a job and scaled to a load of .6. It comes to a mean size of {mean:.3f}, a load of {load:.2f} at × 1,
and J = {levels}."""

COST = """CPU seconds for that million, arrivals to departures, the slowest of the scalings (BF-J and BF-S:
× 1.6 alone; plain Python, one process on a busy machine):"""

PHILLY = """Philly: the {jobs:,} jobs of 8 GPUs or fewer on 64 servers of 8, slots of a second, size by
GPUs (the trace has no other demand), J = 3, load {load:.2f} at × 1 ({busiest:.2f} by what arrives in the
busiest tenth of the time):"""

READING = """## Reading it

- The published examples come out: with sizes .4 and .6 VQS falls behind and the others keep up; with sizes
  2 and 5 and fixed service VQS keeps up and BF-J/S and VQS-BF fall behind, VQS-BF later in the run.
- Stalling mends VQS-BF there. It does nothing for BF-J/S: (2, 1) is nine tenths full, never under half.
- Uniform sizes, as published: VQS is worst of the three by far, at these intensities its queue is in the
  thousands; VQS-BF and BF-J/S are level on [.01, .19] up to α = .96, and BF-J/S is better above it and
  everywhere on [.1, .9], where large jobs need a configuration of their own. There VQS-BF falls behind
  sooner than BF-J/S, though its proven share is larger.
- Made-up tasks, as published for Google's: the average queues are VQS-BF ≤ BF-J/S ≤ FIFO-FF at high load,
  from × 1.2 on (at × 1.6: 721 ≤ 874 ≤ 86,096), with little between the first two. Nearly all of the gain over
  FIFO-FF is that nobody is held up by the first in the queue: BF-J, in order of arrival, does as well as
  BF-J/S. Every discipline takes less than a minute of CPU for the million tasks.
- Philly is another matter. For weeks more arrives than can be served, and taking the largest first lets the
  jobs of one GPU wait, nine of ten: BF-J/S and BF-S end up worse than BF-J at every scaling, and worse than
  FIFO-FF from × 1.2 on. A throughput proven for loads that can be served says nothing about who waits when
  they cannot. VQS and VQS-BF weigh by how many wait and stay far below the rest.
- One seed each. Queues near the limit of stability swing widely from seed to seed; the order of the
  disciplines is what to read, not the last digits."""


if __name__ == "__main__":
    main()
