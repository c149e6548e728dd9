"""Accuracy of a user's run-time estimates: what part of them that user's past jobs have run.

Users of batch systems give limits where estimates are asked for: on RICC and LCG run times are a quarter to a
sixtieth of them in sum (docs/results/estimates.md). A job's estimate counts multiplied by its user's factor,
the ratio of the sums of run times and estimates, drawn towards 1 while few jobs tell of it. How many tell is
Kish's effective sample size, (Σe)²/Σe² for estimates e: one long job among many short ones is hardly more
than one. Only the user's own jobs make the factor, so that nobody changes how long the jobs of others wait;
and it is at most 1, so that no job waits for longer than by its user's own estimate.
"""

from __future__ import annotations

from starburst.domain.value import value

#: Right estimates that a user is credited with, in effective jobs.
PRIOR_JOBS = 3.0
#: What one more job leaves of the weights of those before it.
KEEP = 0.997


@value
class Accuracy:
    """Jobs of one user that had an estimate and succeeded: sums of seconds, later ones with more weight."""

    run_s: float = 0.0
    estimated_s: float = 0.0
    #: Of the weighted estimates; seconds squared.
    squares: float = 0.0

    def after(self, run_s: float, estimated_s: float) -> Accuracy:
        """With one more job."""
        return Accuracy(
            self.run_s * KEEP + run_s,
            self.estimated_s * KEEP + estimated_s,
            self.squares * KEEP**2 + estimated_s**2,
        )

    @property
    def factor(self) -> float:
        """What the user's next estimate is multiplied by: at most 1, three digits.

        The rounding makes it exactly 1 for right estimates, whatever the rounding of their sums.
        """
        if self.squares <= 0:
            return 1.0
        ran, jobs = self.run_s / self.estimated_s, self.estimated_s**2 / self.squares
        return min(float(f"{(jobs * ran + PRIOR_JOBS) / (jobs + PRIOR_JOBS):.3g}"), 1.0)


#: Of a user none of whose jobs has ended.
UNTRIED = Accuracy()
