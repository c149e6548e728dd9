"""How long jobs are taken to run: by their users' estimates, by past jobs of their size, by their limits."""

from __future__ import annotations

from starburst.core.model.load import LoadEstimate
from starburst.domain.job import Job
from starburst.policy.estimate_accuracy import UNTRIED, Accuracy
from starburst.policy.waiting import hours


class RunTimes:
    """What past jobs tell of the next ones; seconds throughout."""

    def __init__(self, load: LoadEstimate) -> None:
        self._load = load
        #: By user.
        self.accuracies: dict[str, Accuracy] = {}

    def expected_s(self, job: Job) -> float:
        """The user's estimate, corrected, or the mean of past jobs of its size class; at most its limit."""
        corrected_s = self.corrected_s(job)
        return _limited(job, self._load.runtime_s(job.resources.gpus) if corrected_s is None else corrected_s)

    def corrected_s(self, job: Job) -> float | None:
        """The user's estimate by what that user's past ones were worth; None if there is none."""
        given_s = job.runtime_estimate_s
        return None if given_s is None else given_s * self.accuracy(job).factor

    def longest_s(self, job: Job) -> float:
        """What money is reserved for, on the high side: the estimate as it is; without one as expected."""
        given_s = job.runtime_estimate_s
        return self.expected_s(job) if given_s is None else _limited(job, given_s)

    def accuracy(self, job: Job) -> Accuracy:
        """Of the estimates of its user; a job of no user is not judged by other such jobs."""
        return self.accuracies.get(job.user, UNTRIED)

    def source(self, job: Job) -> str:
        """Where the expected run time comes from."""
        if self.expected_s(job) == job.time_limit_s:
            return "time limit"
        if job.runtime_estimate_s is None:
            return "mean of past jobs of its size"
        return "user" if self.accuracy(job).factor == 1 else "user, corrected"

    def correction(self, job: Job) -> str:
        """For reasons, after the name of a policy: what of its estimate counts, if not all."""
        given_s, factor = job.runtime_estimate_s, self.accuracy(job).factor
        if given_s is None or factor == 1:
            return ""
        counts = f"{factor:.0%} of the {hours(given_s)} estimated"
        return f" with {counts}, as past estimates of {job.user} were too long"

    def succeeded(self, job: Job, run_s: float) -> Accuracy | None:
        """Learn how long a job ran; returns the accuracy of its user if that changes."""
        self._load.finished(job.resources.gpus, run_s)
        if not job.user or job.runtime_estimate_s is None:
            return None
        accuracy = self.accuracy(job).after(run_s, _limited(job, job.runtime_estimate_s))
        self.accuracies[job.user] = accuracy
        return accuracy


def _limited(job: Job, run_s: float) -> float:
    """At most the time limit of the job."""
    return run_s if job.time_limit_s is None else min(run_s, job.time_limit_s)
