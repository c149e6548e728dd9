"""Return policies: whether a job that runs in the cloud returns to the cluster; at most once per job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: Least ratio of the remaining share of the run (saved) to the completed share that is lost.
MIN_SAVING_PER_DISRUPTION = 1.0


@dataclass(frozen=True, slots=True)
class CloudRun:
    """A cloud run past T_max. Times in seconds."""

    elapsed_s: float
    #: Estimated run time of the job; None if unknown.
    runtime_estimate_s: float | None
    checkpoint: bool

    @property
    def remaining_s(self) -> float:
        """Remaining run time in the cloud. If unknown or overrun, it is assumed to equal the elapsed time.

        Run times of ML jobs are heavy-tailed: the expected remaining time grows with the elapsed time.
        """
        if self.runtime_estimate_s is None or self.runtime_estimate_s <= self.elapsed_s:
            return self.elapsed_s
        return self.runtime_estimate_s - self.elapsed_s


class ReturnPolicy(Protocol):
    """Decides about one cloud run past T_max."""

    #: True: a free slot on the cluster is reserved before the run is stopped. False: the run is stopped and
    #: the job queues again.
    reserves: bool

    def pays(self, run: CloudRun) -> bool:
        """Whether the run is to return."""


class Never:
    """No run returns."""

    reserves = True

    def pays(self, run: CloudRun) -> bool:
        """Always False."""
        return False


class PastTMax:
    """The paper's rule for Star-Wait: past T_max every cloud run is stopped and its job queued again."""

    reserves = False

    def pays(self, run: CloudRun) -> bool:
        """Always True."""
        return True


class IfItPays:
    """Return into a reserved slot if the saving is at least as large as the lost work.

    The saving is the remaining (still to be billed) share of the run; the disruption is the completed share
    that is lost without a checkpoint. The rule is Karpenter's: saving ÷ disruption ≥ 1/k, here with k = 1.
    """

    reserves = True

    def pays(self, run: CloudRun) -> bool:
        """remaining ≥ lost work; a checkpointing job loses none."""
        lost_s = 0.0 if run.checkpoint else run.elapsed_s
        return run.remaining_s >= MIN_SAVING_PER_DISRUPTION * lost_s


RETURNS: dict[str, ReturnPolicy] = {"never": Never(), "t-max": PastTMax(), "if-it-pays": IfItPays()}
