"""What a soak says: a verdict, a table and a figure of its samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

MIB = 2**20
#: Memory is flat if it grows by less than this share over the second half of a run.
FLAT = 0.02
#: A database is flat if it grows by no more than the history of the jobs that it rolled up, bytes a job.
HISTORY = 250


@dataclass(frozen=True, slots=True)
class Sample:
    """How it stood after so many jobs had ended; bytes and seconds."""

    ended: int
    wall_s: float
    cpu_s: float
    days: float
    steps: int
    rss: int
    #: Python's own allocations, which no allocator's habits blur.
    blocks: int
    database: int
    wal: int
    tasks: int
    lag: int
    jobs: int
    queue: int
    machines: int
    timers: int
    #: The lengths of all of the scheduler's collections together.
    others: int
    #: The slowest of the last web pages.
    page_s: float
    directories: int


@dataclass(frozen=True, slots=True)
class Told:
    """A whole run."""

    samples: Sequence[Sample]
    decided: Mapping[str, int]
    wrong: Sequence[str]
    prunings: int
    pages: Sequence[float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it is good, and why, in sentences."""

    good: bool
    lines: Sequence[str]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil and Sen's: the median of the slopes between any two points."""
    slopes = [
        (y2 - y1) / (x2 - x1) for n, (x1, y1) in enumerate(points) for x2, y2 in points[n + 1 :] if x2 != x1
    ]
    return median(slopes) if slopes else 0.0


def tenth(samples: Sequence[Sample], number: int) -> Sequence[Sample]:
    """The samples of one tenth of the jobs, from 1."""
    last = samples[-1].ended
    return [s for s in samples if last * (number - 1) <= 10 * s.ended <= last * number] or [samples[-1]]


def verdict(told: Told) -> Verdict:
    """Judge a run by its second half: until then caches fill, and each peak of load is the highest so far."""
    samples, last = told.samples, told.samples[-1]
    second, sixth, tenth_ = (tenth(samples, number) for number in (2, 6, 10))
    warm = [s for s in samples if 2 * s.ended >= last.ended]
    per_job = slope([(s.ended, s.rss) for s in warm])
    grows = per_job * (warm[-1].ended - warm[0].ended) / mean(s.rss for s in sixth)
    ratio = mean(s.rss for s in tenth_) / mean(s.rss for s in sixth)
    speeds = [_rate(some, lambda s: s.steps, lambda s: s.cpu_s) for some in (second, tenth_)]
    blocks = [median(s.blocks for s in some) for some in (second, tenth_)]
    flat = grows < FLAT and ratio < 1 + FLAT
    stored = slope([(s.ended, s.database) for s in warm])
    early, late = (
        median(part or [0])
        for part in (told.pages[: len(told.pages) // 5], told.pages[-len(told.pages) // 5 :])
    )
    lines = [
        f"{last.ended:,} jobs, {last.steps:,} steps and {last.days:.1f} virtual days in "
        f"{last.wall_s / 60:.1f} minutes ({last.cpu_s / 60:.1f} of CPU); {told.prunings} prunings",
        f"memory is {'flat' if flat else 'NOT flat'}: over the second half {100 * grows:+.2f} % (Theil–Sen, "
        f"{1e4 * per_job / MIB:+.3f} MiB per 10,000 jobs); last ÷ sixth tenth {ratio:.4f}; last ÷ second "
        f"tenth {mean(s.rss for s in tenth_) / mean(s.rss for s in second):.4f}; "
        f"at most {max(s.rss for s in samples) / MIB:.1f} MiB",
        *(
            [f"Python's blocks: {blocks[0]:,.0f} in the second tenth, {blocks[1]:,.0f} in the last"]
            * any(blocks)
        ),
        f"the database is {'flat' if stored < HISTORY else 'NOT flat'}: over the second half {stored:+.0f} "
        f"bytes a job (Theil–Sen), at most {max(s.database for s in samples) / MIB:.0f} MiB",
        f"steps per CPU second: {speeds[0]:.0f} in the second tenth, {speeds[1]:.0f} in the last; pages take "
        f"{1e3 * early:.0f} ms in the first fifth and {1e3 * late:.0f} ms in the last, the slowest "
        f"{1e3 * max(told.pages or [0]):.0f} ms",
        *([f"wrong: {problem}" for problem in told.wrong] or ["nothing else is wrong at the end"]),
    ]
    return Verdict(flat and stored < HISTORY and not told.wrong, lines)


def _rate(
    samples: Sequence[Sample], what: Callable[[Sample], float], per: Callable[[Sample], float]
) -> float:
    passed = per(samples[-1]) - per(samples[0])
    return (what(samples[-1]) - what(samples[0])) / passed if passed else 0.0


def write(told: Told, out: Path, command: str) -> None:
    """soak.md and soak.svg, and the samples themselves beside a run that went wrong."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "soak.md").write_text(page(told, command), encoding="utf-8")
    _draw(told, out / "soak.svg")
    if not verdict(told).good:
        (out / "soak.json").write_text(json.dumps([asdict(s) for s in told.samples]), encoding="utf-8")


def page(told: Told, command: str) -> str:
    """The results as Markdown."""
    jobs = f"{told.samples[-1].ended:,}"
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(told.decided.items()))
    lines = [*ABOUT.format(command=command, jobs=jobs).splitlines(), ""]
    lines += [f"- {line}" for line in verdict(told).lines]
    lines += [
        "",
        "![memory, database, speed and what is alive, over jobs](soak.svg)",
        "",
        *table(told.samples),
    ]
    lines += ["", f"What was decided: {kinds}.", ""]
    return "\n".join(lines)


def table(samples: Sequence[Sample]) -> list[str]:
    """A line for each tenth; speeds are those since the line before."""
    step = max(1, len(samples) // 10)
    chosen = [*samples[: -step // 2 : step], samples[-1]]
    head = "jobs ended|virtual days|memory, MiB|database, MiB|log of writes, MiB|jobs alive|in the queue"
    head += "|machines|timers|tasks|lag of the listener|directories|steps/CPU s|jobs/s"
    lines = [f"| {head.replace('|', ' | ')} |", "|" + " ---: |" * (head.count("|") + 1)]
    for before, s in zip([chosen[0], *chosen], chosen, strict=False):
        steps = _rate([before, s], lambda s: s.steps, lambda s: s.cpu_s)
        jobs = _rate([before, s], lambda s: s.ended, lambda s: s.wall_s)
        cells = [f"{s.ended:,}", f"{s.days:.1f}", f"{s.rss / MIB:.1f}", f"{s.database / MIB:.0f}"]
        cells += [
            f"{s.wal / MIB:.1f}",
            f"{s.jobs}",
            f"{s.queue}",
            f"{s.machines}",
            f"{s.timers}",
            f"{s.tasks}",
        ]
        cells += [
            f"{s.lag}",
            f"{s.directories:,}",
            f"{steps:.0f}" if steps else "",
            f"{jobs:.0f}" if jobs else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


ABOUT = """# A soak: {jobs} jobs through the live scheduler

The controller, core, SQLite store (a file on disk, every step a transaction with fsync), outbox, pruning, roll-up of jobs after a
day and of machines after three, and web pages of `starburst up`, in virtual time: 32 nodes of 8 GPUs that are asked for 1.2 times what they are, a cloud by
the second, caps, queues with shares, packing, moves, returns, retries, arrays, dependencies, holds and cancellations
all at once (`bench/live.py`, `bench/users.py`). The sites are simulated and unreliable (`bench/sites.py`,
`bench/cloud.py`): calls fail before or after they took effect, runs are lost or displaced, reports come twice, offers
are sold out, launches fail and are billed, spot machines are taken away, machines die or cannot be reached, nodes are
drained. News of the sites and of users come once a virtual minute. Every 500 jobs somebody loads the dashboard, `/metrics`, three explanations
and a job's page. On two cores.

```console
$ {command}
```

A run is right if, at its end, every job has ended exactly once, nothing is rented or alive, the bills of all machines
are the cloud's own to the micro-dollar and add up to what jobs paid, the listener was told of every decision, and
nothing is left in any of the scheduler's collections; memory is flat if it grows by less than 2 % over the
second half, the database if it grows by less than 250 bytes a job."""  # noqa: E501 - Markdown is as wide as in the other results


def _draw(told: Told, path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, and only needed at the end

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "soak"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    samples = told.samples
    x = [s.ended / 1000 for s in samples]
    between = list(pairwise(samples))
    speed = [_rate(pair, lambda s: s.steps, lambda s: s.cpu_s) for pair in between]
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True)
    lines: list[tuple[int, str, list[tuple[str, Sequence[float], Sequence[float]]]]] = [
        (0, "MiB", [("resident memory", x, [s.rss / MIB for s in samples])]),
        (1, "MiB", [("database", x, [s.database / MIB for s in samples])]),
        (2, "per CPU second", [("steps", x[1:], speed)]),
        (3, "", [(n, x, [getattr(s, n) for s in samples]) for n in ("jobs", "queue", "machines", "timers")]),
    ]
    for place, unit, series in lines:
        ax = axes.flat[place]
        for name, at, values in series:
            ax.plot(at, values, label=name, linewidth=1.2)
        ax.set_ylim(bottom=0)
        ax.set_ylabel(unit)
        ax.legend(loc="lower right" if place != 3 else "upper right", fontsize=8)
        ax.grid(alpha=0.3)
    for ax in axes[1]:
        ax.set_xlabel("thousand jobs ended")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
