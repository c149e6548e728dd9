"""Traces of the experiments that are not as published: stretched, drawn anew from Philly, or like Helios."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.readers.columns import chosen, trace_of
from sim.readers.generator import Arrivals
from sim.trace import Floats, Trace

#: GPUs of a Helios-like job → share. Ours; the mean, 1.94, is that of Starburst's factors for Helios.
HELIOS_GPUS = {1: 0.77, 2: 0.09, 4: 0.06, 8: 0.07, 16: 0.008, 32: 0.002}
#: Mean run time 1.816 h grows with size by this power, so that a mean job takes 11.35 GPU-hours.
HELIOS_POWER = 1.121
HELIOS_MEAN_H = 1.816
#: Spread of the log-normal run times; ours. Longest run, hours; ours.
HELIOS_SIGMA, HELIOS_LONGEST_H = 2.0, 1200.0
#: 1,853,756 GPU-hours over 4,651.9 h are 398.5 GPUs at work, a load of .623 on 640.
HELIOS_GPUS_AT_WORK = 1_853_756.124 / 4_651.911


def stretched(trace: Trace, factor: float) -> Trace:
    """The same jobs, arriving over a span that is longer by a factor: the load falls by it."""
    return replace(trace, arrival_h=trace.arrival_h * factor)


def resampled(trace: Trace, jobs: int, gpus_at_work: float, *, cv: float = 1.0, seed: int = 0) -> Trace:
    """Jobs drawn from a trace with replacement, arriving by a gamma process (cv 1: Poisson).

    As the paper's synthetic traces are made. The rate is such that `gpus_at_work` are busy on average if
    every job starts at once, by the mean of the jobs drawn.
    """
    rng = np.random.default_rng(seed)
    drawn = chosen(trace, rng.integers(0, len(trace), jobs))
    rate = gpus_at_work / float(np.mean(drawn.gpus * drawn.duration_h))
    return replace(drawn, ids=[str(job) for job in range(jobs)], arrival_h=_arrivals(rng, jobs, rate, cv))


def helios_like(jobs: int, *, cv: float = 1.0, seed: int = 0) -> Trace:
    """Jobs with the means that Starburst's scripts imply for Helios; everything else is an assumption."""
    rng = np.random.default_rng(seed)
    sizes, shares = np.array(list(HELIOS_GPUS)), np.array(list(HELIOS_GPUS.values()))
    gpus = rng.choice(sizes, jobs, p=shares)
    mean_h = HELIOS_MEAN_H / float(np.dot(shares, sizes**HELIOS_POWER)) * gpus**HELIOS_POWER
    noise = rng.lognormal(-(HELIOS_SIGMA**2) / 2, HELIOS_SIGMA, jobs)
    duration_h = np.minimum(mean_h * noise, HELIOS_LONGEST_H)
    rate = HELIOS_GPUS_AT_WORK / float(np.mean(gpus * duration_h))
    return trace_of(
        [str(job) for job in range(jobs)], _arrivals(rng, jobs, rate, cv), duration_h, gpus.astype(np.float64)
    )


def _arrivals(rng: np.random.Generator, jobs: int, rate_per_h: float, cv: float) -> Floats:
    return Arrivals(process="gamma", rate_per_h=rate_per_h, cv=cv).draw(rng, jobs)
