"""Calibrated budgets on many traces drawn like those of `budget.py`: is what is seen there luck?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from sim.experiments.points import cost_at, falling, point
from sim.experiments.shared import SMALL, doubling, gpu_jobs, table
from sim.spec import Spec
from sim.trace import Floats, Trace

PERCENTS = (5, 10, 25)
#: Budgets of each open-loop curve, percent.
GRID = tuple(float(percent) for percent in np.geomspace(0.5, 300, 80))
HEAD = ("like", "P", "realises", "saves", "more than open loop there", "least", "below")


@dataclass(frozen=True, slots=True)
class Family:
    """Traces of one kind."""

    title: str
    spec: Spec
    seeds: range
    draw: Callable[[int], Trace]


def arriving(load: float, cluster: int, duration_h: Floats, rng: np.random.Generator, cv: float) -> Trace:
    """Jobs of these run times and few GPUs, for a cluster of so many at this load; `cv` is of the gaps."""
    jobs = len(duration_h)
    gpus = rng.choice([1, 2, 4, 8], size=jobs, p=[0.7, 0.15, 0.1, 0.05])
    mean_h = float(np.mean(gpus * duration_h)) / (cluster * load)
    return gpu_jobs(np.cumsum(rng.gamma(1 / cv**2, mean_h * cv**2, jobs)), duration_h, gpus)


def like_tab4(seed: int) -> Trace:
    """500 exponential jobs at load 1."""
    rng = np.random.default_rng(seed)
    return arriving(1.0, 32, rng.exponential(1.0, 500), rng, cv=1)


def like_phillylike(seed: int) -> Trace:
    """6,000 jobs of log-normal run times, cut off at 2.78 h, at load .97."""
    rng = np.random.default_rng(seed)
    return arriving(0.97, 32, np.minimum(rng.lognormal(-0.65, 1.05, 6000), 2.78), rng, cv=1)


def like_philly(seed: int) -> Trace:
    """20,000 jobs of very heavy-tailed run times that come in bursts, at load 1."""
    rng = np.random.default_rng(seed)
    return arriving(1.0, 128, rng.lognormal(-1.2, 2.0, 20_000), rng, cv=3)


FAMILIES = (
    Family("tab4_s1.0: 500 jobs", replace(SMALL, warmup=100), range(1001, 1041), like_tab4),
    Family("phillylike_r24: 6,000 jobs", replace(SMALL, warmup=500), range(2001, 2009), like_phillylike),
    Family("the doubled load: 12,000 jobs", replace(SMALL, warmup=500), range(3001, 3009), doubling),
    Family(
        "philly: 20,000 jobs, 16 × 8 GPUs",
        replace(SMALL, nodes=16, warmup=1000),
        range(4001, 4007),
        like_philly,
    ),
)


def rows() -> Iterator[tuple[object, ...]]:
    """A row for every family and P."""
    for family in FAMILIES:
        print(f"{len(family.seeds)} traces like {family.title}", flush=True)
        measured = np.array([_one(family.draw(seed), family.spec) for seed in family.seeds])
        for n, percent in enumerate(PERCENTS):
            increase, saved, more = measured[:, n].T
            error = more.std(ddof=1) / len(more) ** 0.5
            yield (
                family.title,
                f"{percent} %",
                f"{increase.mean():.1f} ± {increase.std(ddof=1):.1f} %",
                f"{saved.mean():.1f} %",
                f"**{more.mean():+.1f}** ± {error:.1f}",
                f"{more.min():+.1f}",
                f"{(more < 0).sum()} of {len(more)}",
            )


def _one(trace: Trace, spec: Spec) -> list[tuple[float, float, float]]:
    """For every P: the increase, percent; what is saved, percent; by how much more than open loop there."""
    free = point(trace, replace(spec, waiting="no-wait")).cost
    curve = falling([point(trace, replace(spec, budget_percent=percent)) for percent in GRID])
    found = []
    for percent in PERCENTS:
        calibrated = replace(spec, budget_percent=percent, budget_mode="calibrated", hopeless="leave")
        held = point(trace, calibrated)
        saved, loop = (100 * (1 - cost / free) for cost in (held.cost, cost_at(curve, held.increase)))
        found.append((held.increase, saved, saved - loop))
    return found


def section() -> str:
    """This part of the page."""
    return f"{INTRODUCTION}\n\n{table(HEAD, rows())}"


INTRODUCTION = """## The same on traces drawn alike

Single runs scatter, so here is the mean of many: traces drawn like those above, "leave", with seeds that were
never looked at when constants were chosen. "Realises": mean and standard deviation over the traces. "More
than open loop there": in points of saving, against the fitted curve of the same trace, mean and standard
error; "least" of them; "below" open loop in so many."""
