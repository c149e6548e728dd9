"""Mean size E[r] and mean run time T of past jobs, starting from a prior; and their run times by size class.

Large jobs run for longer than small ones, so a job without an estimate is taken to run as long as past jobs
of its size class (docs/results/estimates.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from starburst.policy.forecast_bias import CLASSES, size_class
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
    #: Number and sum of the run times of each size class.
    class_runtimes: tuple[int, ...] = (0,) * CLASSES
    class_sums_s: tuple[float, ...] = (0.0,) * CLASSES

    def submitted(self, size: float) -> None:
        """Count a submitted job of `size` GPU equivalents."""
        self.sizes += 1
        self.size_sum += size

    def finished(self, gpus: int, runtime_s: float) -> None:
        """Count the run time of a succeeded job."""
        self.runtimes += 1
        self.runtime_sum_s += runtime_s
        known, sums_s = list(self.class_runtimes), list(self.class_sums_s)
        kind = size_class(gpus)
        known[kind] += 1
        sums_s[kind] += runtime_s
        self.class_runtimes, self.class_sums_s = tuple(known), tuple(sums_s)

    def runtime_s(self, gpus: int) -> float:
        """Mean of past jobs of this size class; the mean of all jobs counts as `prior_jobs` of them."""
        kind, mean_s = size_class(gpus), self.load.mean_runtime_s
        jobs = self.prior_jobs + self.class_runtimes[kind]
        return (self.prior_jobs * mean_s + self.class_sums_s[kind]) / jobs

    @property
    def load(self) -> Load:
        """The estimates as the waiting policies use them."""
        jobs = self.prior_jobs + self.runtimes
        return Load(
            (self.prior_jobs * self.prior_size + self.size_sum) / (self.prior_jobs + self.sizes),
            (self.prior_jobs * self.prior_runtime_s + self.runtime_sum_s) / jobs,
        )
