"""Reasons that belong to a job's phase: why it waits, why it leaves for the cloud, why its run is stopped.

The phases themselves are `starburst.domain.job.Phase`; which may follow which is written down in
`core/steps/transitions.py`. The values of the enums are stored in the database and never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class StopReason(str, Enum):
    """Why a STOPPING run was told to end; it decides what becomes of the job when the run is gone."""

    CANCEL = "cancel"  # by its user or an admin: the job is over
    RETURN = "return"  # to go on, or wait a second time, on the cluster
    MOVE = "move"  # to go on on other machines of the cloud (consolidation)
    CAP = "cap"  # a cap on spending is reached: the job queues
    LOST = "lost"  # a machine of its gang is gone: the job queues, and the loss counts
    PREEMPTED = "preempted"  # the cloud took a machine of its gang: the job queues


class LeaveReason(str, Enum):
    """Why a job leaves for the cloud."""

    EXPIRED = "expired"  # its wait is over
    HOPELESS = "hopeless"  # by estimates there is no room before its wait is over
    QUEUE_FULL = "queue-full"  # the queue is longer than its limit
    REFUSED = "refused"  # the cluster does not start it, and its wait is over
    CPU_ONLY = "cpu-only"  # it needs no GPU, and the settings keep the cluster for jobs that do
    SHORT = "short"  # it is shorter than the settings' limit
    ONLY = "only"  # its user allows the cloud only
    TOO_BIG = "too-big"  # the cluster could not hold it even if empty
    AGAIN = "again"  # the machine that was rented for it did not come up
    STRANDED = "stranded"  # it was stopped to move, and the target of the move is lost

    @property
    def wants_room(self) -> bool:
        """Whether room on the cluster would have kept the job there; it then may still be recalled."""
        return self in _WANTS_ROOM

    @property
    def is_early(self) -> bool:
        """Whether its wait is not over, so that the job waits on where it is if the cloud cannot take it."""
        return self in _EARLY


_WANTS_ROOM = frozenset({LeaveReason.EXPIRED, LeaveReason.HOPELESS, LeaveReason.QUEUE_FULL})
_EARLY = frozenset({LeaveReason.HOPELESS, LeaveReason.QUEUE_FULL})


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait that a job was given: the numbers of the decision that set its deadline."""

    #: What it waits for, e.g. "2 GPUs".
    need: str
    #: Seconds from the decision; None is without end.
    wait_s: float | None
    #: The waiting policy and its formula with numbers, or the user's annotation.
    rule: str
    #: The run time that the policy reckoned with, seconds.
    runtime_s: float
    #: Where that comes from: "user" or "mean of past jobs".
    estimated_by: str


@dataclass(frozen=True, slots=True)
class NoOffer:
    """No offer holds the job, all that do are paused, or its cluster does not let it leave.

    It is tried again at the job's deadline; an infinite deadline waits for other offers.
    """

    text: str


@dataclass(frozen=True, slots=True)
class OverBudget:
    """A cap on spending has less left than the job costs."""

    #: Name of the cap.
    cap: str
    #: End of the cap's window, scheduler seconds; the job is tried again then.
    until: float
    #: Micro-dollars until the end of the window; infinite if no price is known.
    cost: float
    text: str


#: Why a job that should be in the cloud still waits. OverBudget first: decoders take the first that fits.
Obstacle = OverBudget | NoOffer
