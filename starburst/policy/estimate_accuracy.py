"""Accuracy of a user's run-time estimates: what part of them that user's past jobs have run.

Users of batch systems give limits where estimates are asked for: on RICC and LCG run times are a quarter to a
sixtieth of them in sum (docs/results/estimates.md). A job's estimate counts multiplied by its user's factor.
Only that user's own jobs make it, so that nobody changes how long the jobs of others wait; and it is at most
1, so that no job waits for longer than by its user's own estimate.
"""

from __future__ import annotations

from starburst.domain.value import value

#: Right estimates of mean size that a user is credited with, so that a few jobs are no evidence.
PRIOR_JOBS = 10.0
#: What is left of the sums when one more job has ended.
KEEP = 0.997


@value
class Accuracy:
    """Jobs of one user that had an estimate and succeeded: their number, run times and estimates, summed."""

    jobs: float = 0.0
    run_s: float = 0.0
    estimated_s: float = 0.0

    def after(self, run_s: float, estimated_s: float) -> Accuracy:
        """With one more job."""
        return Accuracy(
            self.jobs * KEEP + 1, self.run_s * KEEP + run_s, self.estimated_s * KEEP + estimated_s
        )

    @property
    def factor(self) -> float:
        """What the user's next estimate is multiplied by: at most 1, three digits.

        The rounding makes it exactly 1 for right estimates, whatever the rounding of their sums.
        """
        if self.estimated_s <= 0:
            return 1.0
        ran = self.run_s / self.estimated_s
        return min(float(f"{(self.jobs * ran + PRIOR_JOBS) / (self.jobs + PRIOR_JOBS):.3g}"), 1.0)


#: Of a user none of whose jobs has ended.
UNTRIED = Accuracy()
