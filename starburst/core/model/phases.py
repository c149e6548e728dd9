"""Reasons that belong to a job's phase: why it waits, why it leaves for the cloud, why its run is stopped.

The phases are `starburst.domain.job.Phase`, their transitions are in `core/steps/transitions.py`. The values
of the enums are stored in the database and never change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from starburst.domain.value import value


class StopReason(str, Enum):
    """Why a run is stopped; it determines the job's next phase once the run's end is confirmed."""

    CANCEL = "cancel"  # by its user or an admin: the job is over
    RETURN = "return"  # to continue, or queue with a second wait, on the cluster
    MOVE = "move"  # to continue on other instances (consolidation)
    CAP = "cap"  # a cap is reached, or its machine is above the ceiling of prices: the job queues
    REQUEUE = "requeue"  # by its user: the job queues with a new wait
    LOST = "lost"  # an instance of its gang is gone: the job queues, and the loss counts
    SUSPEND = "suspend"  # its user keeps it from running: the job is held
    PREEMPTED = "preempted"  # the cloud preempted an instance of its gang: the job queues


class LeaveReason(str, Enum):
    """Why a job leaves for the cloud."""

    EXPIRED = "expired"  # its wait is over
    HOPELESS = "hopeless"  # by estimates it cannot start before its deadline
    DEAR = "dear"  # its predicted wait is worth more than its cloud run (calibrated budget)
    EXHAUSTED = "exhausted"  # the wait budget is spent, and of the waiting jobs it is among the cheapest
    SPARE = "spare"  # a machine that others need for longer anyway has room for it (joint with packing)
    QUEUE_FULL = "queue-full"  # the queue is longer than its limit
    REFUSED = "refused"  # the cluster refuses to start it, and its wait is over
    CPU_ONLY = "cpu-only"  # it needs no GPU, and the settings keep the cluster for jobs that do
    SHORT = "short"  # it is shorter than the settings' limit
    ONLY = "only"  # its user allows the cloud only
    TOO_BIG = "too-big"  # the cluster could not hold it even if empty
    AGAIN = "again"  # the launch of its instance failed
    STRANDED = "stranded"  # it was stopped for a move whose target is lost

    @property
    def wants_room(self) -> bool:
        """Whether it leaves for lack of cluster capacity; such a job can be recalled before the launch."""
        return self in _WANTS_ROOM

    @property
    def is_early(self) -> bool:
        """Whether it leaves before its deadline; if the cloud cannot take it, its wait goes on unchanged."""
        return self in _EARLY


_EARLY = frozenset({LeaveReason.HOPELESS, LeaveReason.DEAR, LeaveReason.SPARE, LeaveReason.QUEUE_FULL})
_WANTS_ROOM = _EARLY | {LeaveReason.EXPIRED, LeaveReason.EXHAUSTED}


#: Part of a predicted wait by which a new prediction differs at least, to take its place.
MOVED = 0.1


@value
class Wait:
    """The wait that a job was given: the numbers of the decision that set its deadline."""

    #: What it waits for, e.g. "2 GPUs".
    need: str
    #: Seconds from the decision; None is without limit.
    wait_s: float | None
    #: The waiting policy and its formula with numbers, or the user's annotation.
    rule: str
    #: The run time that the policy used, seconds.
    runtime_s: float
    #: Source of `runtime_s`: "user", "user, corrected" (policy/estimate_accuracy.py), "mean of past jobs of
    #: its size" or "time limit".
    estimated_by: str
    #: The predicted wait, seconds from its begin, under a calibrated budget; None is not predicted yet.
    predicted_s: float | None = None
    #: While it is queued: the time of the first prediction, and the seconds from then that were predicted,
    #: without the bias of the forecast (policy/forecast_bias.py).
    foretold_at: float | None = None
    foretold_s: float = 0.0

    def predict(self, now: float, passed_s: float, wait_s: float, foretold_s: float) -> Wait:
        """The wait with a new prediction: `wait_s` from now, after `passed_s`; itself if that hardly differs.

        `foretold_s`: the prediction without the bias.
        """
        predicted_s = passed_s + wait_s
        if self.foretold_at is None:
            return replace(self, predicted_s=predicted_s, foretold_at=now, foretold_s=foretold_s)
        if self.predicted_s is not None and abs(self.predicted_s - predicted_s) <= MOVED * predicted_s:
            return self
        return replace(self, predicted_s=predicted_s)


@dataclass(frozen=True, slots=True)
class NoOffer:
    """No offer holds the job, all that do are paused, or its cluster forbids it to leave.

    The job tries again at its deadline; if that is infinite, after a change of the offers or of the
    permission.
    """

    text: str


@dataclass(frozen=True, slots=True)
class OverBudget:
    """A cap has less left than the job costs."""

    #: Name of the cap.
    cap: str
    #: End of the cap's window, scheduler seconds; the job tries again then, if not before.
    until: float
    #: Micro-dollars until the end of the window; infinite if no price is known.
    cost: float
    text: str


#: Why a due job is still queued. OverBudget comes first: decoders take the first type that fits.
Obstacle = OverBudget | NoOffer
