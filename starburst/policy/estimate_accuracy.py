"""Accuracy of what a user says of run times: what part of it that user's past jobs have run.

Users of batch systems give limits where estimates are asked for: on RICC and LCG run times are a quarter to a
sixtieth of them in sum (docs/results/estimates.md). A job's estimate counts multiplied by its user's factor,
the ratio of the sums of run times and estimates, drawn towards 1 while few jobs tell of it. How many tell is
Kish's effective sample size, (Σe)²/Σe² for estimates e: one long job among many short ones is hardly more
than one. Only the user's own jobs make the factor, so that nobody changes how long the jobs of others wait;
and it is at most 1, so that no job waits for longer than by its user's own estimate.

A time limit says less than an estimate, but something: the same ratio of it is what the user's jobs run for,
and while few of them tell, the mean of past jobs of that size (`Accuracy.of_limit_s`).
"""

from __future__ import annotations

from starburst.domain.value import value

#: Weight, in effective jobs, of an estimate as it is; of a limit, that of the mean of past jobs of that size.
PRIOR_JOBS = 3.0
#: What one more job leaves of the weights of those before it.
KEEP = 0.997


@value
class Accuracy:
    """Sums over a user's jobs that had an estimate (or a limit) and succeeded; later ones weigh more."""

    run_s: float = 0.0
    #: Of the estimates, or of the limits.
    said_s: float = 0.0
    #: Of the weighted estimates; seconds squared.
    squares: float = 0.0

    def after(self, run_s: float, said_s: float) -> Accuracy:
        """With one more job."""
        return Accuracy(
            self.run_s * KEEP + run_s, self.said_s * KEEP + said_s, self.squares * KEEP**2 + said_s**2
        )

    @property
    def jobs(self) -> float:
        """Effective number of jobs."""
        return self.said_s**2 / self.squares if self.squares > 0 else 0.0

    @property
    def factor(self) -> float:
        """What the user's next estimate is multiplied by: at most 1, three digits.

        The rounding makes it exactly 1 for right estimates, whatever the rounding of their sums.
        """
        return min(float(f"{self._blend(1.0, 1.0):.3g}"), 1.0) if self.squares > 0 else 1.0

    def of_limit_s(self, limit_s: float, mean_s: float) -> float:
        """Expected run time under a time limit; `mean_s` is that of past jobs of that size, of all users."""
        return min(self._blend(limit_s, min(mean_s, limit_s)), limit_s)

    def _blend(self, said_s: float, otherwise_s: float) -> float:
        jobs = self.jobs
        if jobs <= 0:
            return otherwise_s
        ran = self.run_s / self.said_s
        return (jobs * ran * said_s + PRIOR_JOBS * otherwise_s) / (jobs + PRIOR_JOBS)


@value
class UserAccuracy:
    """Accuracy of one user's estimates, and of that user's time limits."""

    estimates: Accuracy = Accuracy()
    limits: Accuracy = Accuracy()


#: Accuracy of a user none of whose jobs has ended.
UNTRIED = UserAccuracy()
