"""Run time and policy-caused delay of all jobs, accumulated over time: the account of a calibrated budget."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from math import inf

from starburst.core.model.jobs import JobRecord
from starburst.core.model.load import LoadEstimate
from starburst.core.model.settings import Settings
from starburst.core.parts.expected_times import PARTS, ExpectedTimes
from starburst.domain.job import CloudChoice
from starburst.policy.budget import (
    Account,
    Budget,
    exhausted_in_s,
    learn,
    multiplier,
    patience,
    room,
    spend,
)
from starburst.policy.forecast_bias import KEEP, ForetoldWait, after, bias

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
        #: Jobs that have had a wait and do not run yet, each with its expected run time in parts of a second.
        self._to_run: dict[str, int] = {}
        self._to_run_sum = 0
        self.waiting: set[str] = set()
        self._starts = ExpectedTimes()
        self.running = ExpectedTimes()

    @property
    def to_run(self) -> Set[str]:
        """The jobs that have had a wait and do not run yet."""
        return self._to_run.keys()

    def expects(self, record: JobRecord, runtime_s: float) -> None:
        """The job has had a wait, and will run for so long."""
        if self.calibrated and record.id not in self.running:
            self.forget(record.id)
            self._to_run[record.id] = parts = round(runtime_s * PARTS)
            self._to_run_sum += parts

    def waits(self, record: JobRecord) -> None:
        """The job is queued."""
        if self.calibrated and record.job.cloud is not CloudChoice.NEVER and record.obstacle is None:
            self.waiting.add(record.id)

    def predict(self, record: JobRecord, start: float) -> None:
        """A waiting job is predicted to start then."""
        if record.id in self.waiting:
            self._starts.expect(record.id, start, record.queued_at)

    def learn(self, runtime_s: float, wait_s: float) -> None:
        """A job has arrived that runs for so many seconds, and is predicted to wait for so many."""
        self.account = learn(self.account, runtime_s, wait_s, self._budget)

    def runs(self, record: JobRecord, until: float) -> None:
        """A run of the job has begun, or is expected to end at another time."""
        if self.calibrated:
            self.forget(record.id)
            self.running.expect(record.id, until)

    def rests(self, record: JobRecord) -> None:
        """The job neither runs nor is kept waiting by the policy."""
        if self.calibrated:
            if record.id in self.waiting and (wait := self._wait_of(record)) is not None:
                self.account = replace(self.account, lateness=after(self.account.lateness, [wait], KEEP))
            self.waiting.discard(record.id)
            self._starts.drop(record.id)
            self.running.drop(record.id)

    def forget(self, job_id: str) -> None:
        """The job runs, or will not run any more."""
        self._to_run_sum -= self._to_run.pop(job_id, 0)

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

    def _wait_of(self, record: JobRecord) -> ForetoldWait | None:
        """What the job has waited, and what was first predicted of that; None if nothing was."""
        wait = record.wait
        if wait is None or wait.foretold_at is None:
            return None
        return ForetoldWait(record.job.resources.gpus, wait.foretold_s, self._now - wait.foretold_at)

    @property
    def _budget(self) -> Budget:
        return Budget(
            self.budget_percent,
            self._past.load.mean_runtime_s,
            self.running.rest_s(self._now) + self._to_run_sum / PARTS,
            self._starts.rest_s(self._now),
            self._starts.late_s(self._now),
        )

    @property
    def multiplier(self) -> float:
        """The correction of the open-loop waiting factor by the calibrated budget."""
        return multiplier(self.account, self._budget)

    def patience(self, runtime_s: float) -> float:
        """The correction of the factor by a job's run time; 1 without an account."""
        return patience(runtime_s, self._past.load.mean_runtime_s) if self.calibrated else 1.0

    def biases(self, queued: Iterable[JobRecord]) -> tuple[float, ...]:
        """Factors by which waits turn out longer than the forecast says, by size class.

        The waits of these jobs, which are queued, count as far as they have lasted.
        """
        records = sorted((record for record in queued if record.id in self.waiting), key=lambda r: r.seq)
        waits = [wait for record in records if (wait := self._wait_of(record)) is not None]
        sums = after(self.account.lateness, waits)
        return tuple(bias(lateness, self._past.load.mean_runtime_s) for lateness in sums)

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
        outlasting, waiting = self.running.past(now), len(self.waiting)
        in_s = exhausted_in_s(self.account, self._budget, outlasting=outlasting, waiting=waiting)
        return now + max(in_s, self._least_s)
