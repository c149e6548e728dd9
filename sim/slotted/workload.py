"""The jobs of a slotted run, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SlottedWorkload:
    """Per job: the slot of arrival, the size in units of `capacity`, and the service time in slots."""

    arrival: Ints
    size: Ints
    service: Ints
    #: Capacity of a server.
    capacity: int

    def __post_init__(self) -> None:
        for name, wrong in (
            ("arrivals must not go back in time", np.any(np.diff(self.arrival) < 0)),
            (
                f"sizes must be from 1 to {self.capacity}",
                np.any((self.size < 1) | (self.size > self.capacity)),
            ),
            ("service must take 1 slot or more", np.any(self.service < 1)),
        ):
            if wrong:
                raise ValueError(name)

    def __len__(self) -> int:
        return len(self.arrival)


def poisson(rng: np.random.Generator, rate: float, slots: int) -> Ints:
    """Slots of arrival: a Poisson number of jobs per slot with mean `rate`, over `slots` slots."""
    return np.repeat(np.arange(slots), rng.poisson(rate, slots))


def geometric(rng: np.random.Generator, mean: float, jobs: int) -> Ints:
    """Geometric service times: a job ends in each slot with probability 1/mean, independent of the past."""
    return rng.geometric(1 / mean, jobs)


def fixed(slots: int, jobs: int) -> Ints:
    """Equal service times for all jobs."""
    return np.full(jobs, slots)
