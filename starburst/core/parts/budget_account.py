"""Run time and policy-caused delay of all jobs, accumulated over time: the account of a calibrated budget."""

from __future__ import annotations

from math import inf

from starburst.core.model.jobs import JobRecord
from starburst.core.model.load import LoadEstimate
from starburst.core.model.settings import Settings
from starburst.core.parts.runs_under_way import RunsUnderWay
from starburst.domain.job import CloudChoice
from starburst.policy.budget import Account, Budget, exhausted_in_s, multiplier, patience, room, spend

#: Real seconds that a foreseen exhaustion is at least away, so that rounding cannot repeat an instant.
LEAST_S = 0.001


class Meter:
    """Counts the jobs that the policy keeps waiting and those that run, and charges the account over time.

    Delays that No-Wait would cause as well are not charged: the wait of a job that may not or cannot leave
    for the cloud, the boot of an instance, a lost run.
    """

    def __init__(self, settings: Settings, past: LoadEstimate) -> None:
        #: Whether there is an account at all; without one no job is counted.
        self.calibrated = settings.calibrates
        self.budget_percent = settings.budget_percent
        self.account = Account()
        self._past = past
        self._now = 0.0
        self._least_s = settings.clock_s(LEAST_S)
        #: Jobs by id.
        self.waiting: set[str] = set()
        self.running = RunsUnderWay()

    def waits(self, record: JobRecord) -> None:
        """The job is queued."""
        if self.calibrated and record.job.cloud is not CloudChoice.NEVER and record.obstacle is None:
            self.waiting.add(record.id)

    def runs(self, record: JobRecord, until: float) -> None:
        """A run of the job has begun, or is expected to end at another time."""
        if self.calibrated:
            self.running.expect(record.id, until)

    def rests(self, record: JobRecord) -> None:
        """The job neither runs nor is kept waiting by the policy."""
        if self.calibrated:
            self.waiting.discard(record.id)
            self.running.drop(record.id)

    def advance(self, elapsed_s: float, now: float) -> None:
        """Charge the `elapsed_s` seconds before `now` to the account."""
        if not self.calibrated:
            return
        self._now = now
        if elapsed_s > 0:
            self._spend(len(self.running) * elapsed_s, len(self.waiting) * elapsed_s)

    def repeat(self, run_s: float, *, ours: bool) -> None:
        """Deduct lost work from the run time; it is a delay if the scheduler caused the loss (`ours`)."""
        if self.calibrated:
            self._spend(-run_s, run_s if ours else 0.0)

    def _spend(self, run_s: float, delay_s: float) -> None:
        self.account = spend(self.account, run_s, delay_s, self._budget)

    @property
    def _budget(self) -> Budget:
        rest_s = self.running.rest_s(self._now)
        return Budget(self.budget_percent, self._past.load.mean_runtime_s, rest_s)

    @property
    def multiplier(self) -> float:
        """The correction of the open-loop waiting factor by the calibrated budget."""
        return multiplier(self.account, self._budget)

    def patience(self, runtime_s: float) -> float:
        """The correction of the factor by a job's run time; 1 without an account."""
        return patience(runtime_s, self._past.load.mean_runtime_s) if self.calibrated else 1.0

    @property
    def excess(self) -> int:
        """Number of waiting jobs that have to leave, as the account is exhausted."""
        if not self.waiting:
            return 0
        most = room(self.account, self._budget, len(self.running))
        return len(self.waiting) - int(most) if most < len(self.waiting) else 0

    def exhausted_at(self, now: float) -> float:
        """When the account will be exhausted if no job starts or ends before; infinity if never."""
        if not self.waiting:
            return inf
        in_s = exhausted_in_s(
            self.account, self._budget, running=len(self.running), waiting=len(self.waiting)
        )
        return now + max(in_s, self._least_s)
