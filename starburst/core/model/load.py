"""Mean size E[r] and mean run time T of past jobs, starting from a prior."""

from __future__ import annotations

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

    def submitted(self, size: float) -> None:
        """Count a submitted job of `size` GPU equivalents."""
        self.sizes += 1
        self.size_sum += size

    def finished(self, runtime_s: float) -> None:
        """Count the run time of a succeeded job."""
        self.runtimes += 1
        self.runtime_sum_s += runtime_s

    @property
    def load(self) -> Load:
        """The estimates as the waiting policies use them."""
        jobs = self.prior_jobs + self.runtimes
        return Load(
            (self.prior_jobs * self.prior_size + self.size_sum) / (self.prior_jobs + self.sizes),
            (self.prior_jobs * self.prior_runtime_s + self.runtime_sum_s) / jobs,
        )
