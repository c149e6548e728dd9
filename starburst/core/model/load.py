"""E[r] and T, learnt from the jobs this scheduler has seen, starting from a prior."""

from __future__ import annotations

import math
from dataclasses import dataclass

from starburst.policy.waiting import Load


@dataclass(slots=True)
class LoadEstimate:
    """Running means; the prior counts as `prior_jobs` jobs."""

    prior_size: float
    prior_runtime_s: float
    prior_jobs: float
    sizes: int = 0
    size_sum: float = 0.0
    runtimes: int = 0
    runtime_sum_s: float = 0.0
    #: Σ run time², seconds².
    runtime_squares: float = 0.0

    def submitted(self, size: float) -> None:
        """One more job, of `size` GPU equivalents."""
        self.sizes += 1
        self.size_sum += size

    def finished(self, runtime_s: float) -> None:
        """One more job that ran to its end."""
        self.runtimes += 1
        self.runtime_sum_s += runtime_s
        self.runtime_squares += runtime_s**2

    @property
    def load(self) -> Load:
        """The workload as the waiting policies see it."""
        jobs = self.prior_jobs + self.runtimes
        squares = self.prior_jobs * self.prior_runtime_s**2 + self.runtime_squares
        return Load(
            (self.prior_jobs * self.prior_size + self.size_sum) / (self.prior_jobs + self.sizes),
            (self.prior_jobs * self.prior_runtime_s + self.runtime_sum_s) / jobs,
            math.sqrt(squares / jobs),
        )
