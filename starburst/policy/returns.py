"""Whether a job that runs in the cloud should come home. It does so at most once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: A return must save a share of the job's cost at least this many times the share of its work it throws away.
MIN_SAVING_PER_DISRUPTION = 1.0


@dataclass(frozen=True, slots=True)
class CloudRun:
    """A cloud run past T_max. Times in seconds."""

    elapsed_s: float
    #: The job's estimated run time; None where nobody knows.
    runtime_estimate_s: float | None
    checkpoint: bool

    @property
    def remaining_s(self) -> float:
        """What it would still take in the cloud. Unknown or overrun: as long again as it took so far.

        Run times of ML jobs are heavy-tailed: the longer one ran, the longer it will.
        """
        if self.runtime_estimate_s is None or self.runtime_estimate_s <= self.elapsed_s:
            return self.elapsed_s
        return self.runtime_estimate_s - self.elapsed_s


class ReturnPolicy(Protocol):
    """Decides on one cloud run past T_max."""

    #: True: a free slot on the cluster is reserved before the run is stopped. False: it queues again.
    reserves: bool

    def pays(self, run: CloudRun) -> bool:
        """Whether to bring it home."""


class Never:
    """What left stays away."""

    reserves = True

    def pays(self, run: CloudRun) -> bool:
        """No."""
        return False


class PastTMax:
    """The paper's rule for Star-Wait: past T_max every job is stopped and queued again."""

    reserves = False

    def pays(self, run: CloudRun) -> bool:
        """Yes."""
        return True


class IfItPays:
    """Home into a reserved slot, when what is saved outweighs the work thrown away.

    Saving is the share of the run that is still to come (and to be billed); disruption is the share already
    done that is lost without a checkpoint. The rule is Karpenter's: saving ÷ disruption ≥ 1/k.
    """

    reserves = True

    def pays(self, run: CloudRun) -> bool:
        """remaining ≥ lost work (nothing is lost with a checkpoint)."""
        lost_s = 0.0 if run.checkpoint else run.elapsed_s
        return run.remaining_s >= MIN_SAVING_PER_DISRUPTION * lost_s


RETURNS: dict[str, ReturnPolicy] = {"never": Never(), "t-max": PastTMax(), "if-it-pays": IfItPays()}
