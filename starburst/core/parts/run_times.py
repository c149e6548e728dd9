"""How long jobs are taken to run: by what their users say, and by past jobs of that user and of that size."""

from __future__ import annotations

from dataclasses import replace

from starburst.core.model.load import LoadEstimate
from starburst.domain.job import Job
from starburst.policy.estimate_accuracy import UNTRIED, UserAccuracy
from starburst.policy.waiting import hours


class RunTimes:
    """What past jobs tell of the next ones; seconds throughout."""

    def __init__(self, load: LoadEstimate) -> None:
        self._load = load
        #: Accuracy of what users say, by user.
        self.accuracies: dict[str, UserAccuracy] = {}

    def expected_s(self, job: Job) -> float:
        """By the user's estimate, corrected; else by the time limit, or by past jobs of its size class."""
        corrected_s, limit_s = self.corrected_s(job), job.time_limit_s
        if corrected_s is not None:
            return _limited(job, corrected_s)
        mean_s = self._load.runtime_s(job.resources.gpus)
        return mean_s if limit_s is None else self.accuracy(job).limits.of_limit_s(limit_s, mean_s)

    def corrected_s(self, job: Job) -> float | None:
        """The user's estimate by what that user's past ones were worth; None if there is none."""
        given_s = job.runtime_estimate_s
        return None if given_s is None else given_s * self.accuracy(job).estimates.factor

    def longest_s(self, job: Job) -> float:
        """Run time on the high side (money, backfill): the whole estimate; else at least the mean."""
        given_s = job.runtime_estimate_s
        if given_s is None:
            given_s = max(self.expected_s(job), self._load.runtime_s(job.resources.gpus))
        return _limited(job, given_s)

    def accuracy(self, job: Job) -> UserAccuracy:
        """Accuracy of the job's user; a job of no user is not judged by other such jobs."""
        return self.accuracies.get(job.user, UNTRIED)

    def source(self, job: Job, expected_s: float) -> str:
        """Where the expected run time comes from."""
        if expected_s == job.time_limit_s:
            return "time limit"
        if job.runtime_estimate_s is None:
            return "time limit, corrected" if self._cuts(job) else "mean of past jobs of its size"
        return "user, corrected" if self._cuts(job) else "user"

    def correction(self, job: Job) -> str:
        """For reasons, after the name of a policy: what of its estimate or limit counts, if not all."""
        said_s = job.time_limit_s if job.runtime_estimate_s is None else job.runtime_estimate_s
        if not said_s or not self._cuts(job):
            return ""
        part, said = f"{self.expected_s(job) / said_s:.0%}", hours(said_s)
        if job.runtime_estimate_s is None:
            return f" with {part} of its time limit of {said}, as past jobs of {job.user} ran for less"
        return f" with {part} of the {said} estimated, as past estimates of {job.user} were too long"

    def succeeded(self, job: Job, run_s: float) -> UserAccuracy | None:
        """Learn how long a job ran; returns the accuracy of its user if that changes."""
        self._load.finished(job.resources.gpus, run_s)
        if not job.user:
            return None
        before = accuracy = self.accuracy(job)
        if job.runtime_estimate_s is not None:
            said_s = _limited(job, job.runtime_estimate_s)
            accuracy = replace(accuracy, estimates=accuracy.estimates.after(run_s, said_s))
        if job.time_limit_s is not None:
            accuracy = replace(accuracy, limits=accuracy.limits.after(run_s, job.time_limit_s))
        if accuracy is before:
            return None
        self.accuracies[job.user] = accuracy
        return accuracy

    def _cuts(self, job: Job) -> bool:
        """Whether less than the whole estimate or limit counts, by past jobs of the user."""
        accuracy = self.accuracy(job)
        if job.runtime_estimate_s is not None:
            return accuracy.estimates.factor < 1
        return job.time_limit_s is not None and accuracy.limits.jobs > 0


def _limited(job: Job, run_s: float) -> float:
    """At most the time limit of the job."""
    return run_s if job.time_limit_s is None else min(run_s, job.time_limit_s)
