"""Synthetic workloads: arrivals, durations and GPUs drawn from distributions, reproducible by seed."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sim.errors import SimulationError
from sim.readers.columns import trace_of
from sim.readers.problems import Problems, shown
from sim.trace import Floats, Trace

Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Arrivals(_Part):
    """Gaps between arrivals: exponential, or gamma with a coefficient of variation."""

    process: Literal["poisson", "gamma"]
    rate_per_h: Annotated[float, Field(ge=1e-6, le=1e9)]
    cv: Annotated[float, Field(ge=0.01, le=100)] = 1.0

    @model_validator(mode="after")
    def _poisson_has_cv_1(self) -> Arrivals:
        if self.process == "poisson" and self.cv != 1:
            raise ValueError("a Poisson process has cv 1; use process: gamma")
        return self

    def draw(self, rng: np.random.Generator, jobs: int) -> Floats:
        """Hours of arrival; the first is 0."""
        shape = 1 / self.cv**2
        gaps = rng.gamma(shape, 1 / (shape * self.rate_per_h), jobs)
        gaps[0] = 0
        return np.cumsum(gaps)


class Exponential(_Part):
    """Exponential durations; what is shorter than min_s or longer than max_s becomes min_s or max_s."""

    distribution: Literal["exponential"]
    mean_h: Positive
    min_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    max_s: Positive = 1e9

    @model_validator(mode="after")
    def _min_up_to_max(self) -> Exponential:
        if self.min_s > self.max_s:
            raise ValueError("min_s must be at most max_s")
        return self

    def draw(self, rng: np.random.Generator, jobs: int) -> Floats:
        """Hours."""
        return np.clip(rng.exponential(self.mean_h, jobs), self.min_s / 3600, self.max_s / 3600)


class Gavel(_Part):
    """10^x minutes, x uniform: 80 % in [1.5, 3], 20 % in [3, 4] (Gavel, OSDI'20; also in Eva)."""

    distribution: Literal["gavel"]

    def draw(self, rng: np.random.Generator, jobs: int) -> Floats:
        """Hours."""
        short = rng.random(jobs) < 0.8
        exponent = np.where(short, rng.uniform(1.5, 3, jobs), rng.uniform(3, 4, jobs))
        return np.asarray(10**exponent / 60, np.float64)


class WorkloadSpec(_Part):
    """A generator's parameters, as in the file."""

    arrivals: Arrivals
    durations: Annotated[Exponential | Gavel, Field(discriminator="distribution")]
    #: GPUs of a job → how likely that is.
    gpus: dict[Annotated[int, Field(ge=0, le=10**6)], Annotated[float, Field(ge=0, le=1)]]
    jobs: Annotated[int, Field(ge=1, le=10**7)]
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _certain_in_sum(self) -> WorkloadSpec:
        if abs(sum(self.gpus.values()) - 1) > 1e-6:
            raise ValueError(f"the shares of gpus must sum to 1, not {sum(self.gpus.values()):.15g}")
        return self


def generate(text: str, name: str, limit: int | None) -> tuple[Trace, list[str]]:
    """Draw the jobs that a YAML or JSON text describes; `limit` keeps the first of them."""
    workload = _parse(text, name)
    rng = np.random.default_rng(workload.seed)
    jobs = workload.jobs
    arrival_h = workload.arrivals.draw(rng, jobs)
    duration_h = workload.durations.draw(rng, jobs)
    shares = np.array(list(workload.gpus.values()))
    gpus = rng.choice(np.array(list(workload.gpus), float), jobs, p=shares / shares.sum())
    first = slice(limit)
    ids = [str(job) for job in range(jobs)][first]
    return trace_of(ids, arrival_h[first], duration_h[first], gpus[first]), []


def _parse(text: str, name: str) -> WorkloadSpec:
    try:
        return WorkloadSpec.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        what = getattr(error, "problem", None) or "unprintable characters"
        raise SimulationError(f"{place}: not YAML ({what}): correct the syntax") from None
    except (RecursionError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise SimulationError(f"{name}: not a workload ({error}): correct the value") from None
        problems = Problems(name, "{file}")
        for found in error.errors():
            field = ".".join(str(part) for part in found["loc"]) or "workload"
            value = "missing" if found["type"] == "missing" else shown(found["input"])
            problems.add(0, field, value, found["msg"].removeprefix("Value error, "))
        problems.check()
        raise
