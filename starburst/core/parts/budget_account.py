"""What jobs run and how long we keep them waiting, as it happens: the books behind a calibrated budget."""

from __future__ import annotations

from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.domain.job import CloudChoice
from starburst.policy.budget import Account, left, multiplier, spend
from starburst.policy.waiting import Load


class Meter:
    """Counts the jobs that wait by our decision and those that run, and charges the account as time passes.

    Not of our making, since No-Wait would have it too: the wait of a job that may not or cannot leave for the
    cloud, a machine's boot, a run that was lost.
    """

    def __init__(self, settings: Settings) -> None:
        self.calibrated = settings.budget_mode == "calibrated"
        self.budget_percent = settings.budget_percent
        self.account = Account()
        #: Jobs by id.
        self.waiting: set[str] = set()
        self.running: set[str] = set()

    def waits(self, record: JobRecord) -> None:
        """The job stands in the queue."""
        if record.job.cloud is not CloudChoice.NEVER and record.obstacle is None:
            self.waiting.add(record.id)

    def runs(self, record: JobRecord) -> None:
        """A run of the job has begun."""
        self.running.add(record.id)

    def rests(self, record: JobRecord) -> None:
        """The job neither waits by our decision nor runs."""
        self.waiting.discard(record.id)
        self.running.discard(record.id)

    def advance(self, elapsed_s: float, load: Load) -> None:
        """Time passes."""
        if self.calibrated and elapsed_s > 0:
            run_s, delay_s = len(self.running) * elapsed_s, len(self.waiting) * elapsed_s
            self.account = spend(self.account, run_s, delay_s, self.budget_percent, load, passed_s=elapsed_s)

    def repeat(self, run_s: float, load: Load, *, ours: bool) -> None:
        """Work is thrown away and will be run again: a delay if it was `ours` to decide."""
        if self.calibrated:
            delay_s = run_s if ours else 0.0
            self.account = spend(self.account, -run_s, delay_s, self.budget_percent, load)

    def cut_short(self, load: Load) -> None:
        """A job leaves for no other reason than that its wait is too short."""
        if self.calibrated:
            self.account = left(self.account, self.budget_percent, load)

    def multiplier(self, load: Load) -> float:
        """What the open-loop factor is multiplied by."""
        return multiplier(self.account, self.budget_percent, load)
