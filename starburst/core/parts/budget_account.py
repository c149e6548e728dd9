"""Run time and policy-caused delay of all jobs, accumulated over time: the account of a calibrated budget."""

from __future__ import annotations

from starburst.core.model.jobs import JobRecord
from starburst.core.model.load import LoadEstimate
from starburst.core.model.settings import Settings
from starburst.domain.job import CloudChoice
from starburst.policy.budget import Account, left, multiplier, spend
from starburst.policy.waiting import Load


class Meter:
    """Counts the jobs that the policy keeps waiting and those that run, and charges the account over time.

    Delays that No-Wait would cause as well are not charged: the wait of a job that may not or cannot leave
    for the cloud, the boot of an instance, a lost run.
    """

    def __init__(self, settings: Settings) -> None:
        #: Whether there is an account at all; without one no job is counted.
        self.calibrated = settings.budget_mode == "calibrated"
        self.budget_percent = settings.budget_percent
        self.account = Account()
        #: Jobs by id.
        self.waiting: set[str] = set()
        self.running: set[str] = set()

    def waits(self, record: JobRecord) -> None:
        """The job is queued."""
        if self.calibrated and record.job.cloud is not CloudChoice.NEVER and record.obstacle is None:
            self.waiting.add(record.id)

    def runs(self, record: JobRecord) -> None:
        """A run of the job has begun."""
        if self.calibrated:
            self.running.add(record.id)

    def rests(self, record: JobRecord) -> None:
        """The job neither runs nor is kept waiting by the policy."""
        if self.calibrated:
            self.waiting.discard(record.id)
            self.running.discard(record.id)

    def advance(self, elapsed_s: float, load: Load) -> None:
        """Charge `elapsed_s` seconds to the account."""
        if self.calibrated and elapsed_s > 0:
            run_s, delay_s = len(self.running) * elapsed_s, len(self.waiting) * elapsed_s
            self.account = spend(self.account, run_s, delay_s, self.budget_percent, load, passed_s=elapsed_s)

    def repeat(self, run_s: float, past: LoadEstimate, *, ours: bool) -> None:
        """Deduct lost work from the run time; it is a delay if the scheduler caused the loss (`ours`)."""
        if self.calibrated:
            delay_s = run_s if ours else 0.0
            self.account = spend(self.account, -run_s, delay_s, self.budget_percent, past.load)

    def cut_short(self, past: LoadEstimate) -> None:
        """Record a job that leaves because its wait ended or was hopeless."""
        if self.calibrated:
            self.account = left(self.account, self.budget_percent, past.load)

    def multiplier(self, load: Load) -> float:
        """The correction of the open-loop waiting factor by the calibrated budget."""
        return multiplier(self.account, self.budget_percent, load)
