"""The scheduler's record of a job: its changing state, complete enough for a restart."""

from __future__ import annotations

import math
from dataclasses import dataclass

from starburst.core.model.actions import Slot
from starburst.core.model.phases import LeaveReason, Obstacle, StopReason, Wait
from starburst.domain.job import Job, Phase, Site
from starburst.domain.resources import total


class _HasId:
    """A record's id, which is that of its job: no field itself, so it is not stored twice."""

    __slots__ = ("id",)
    id: str

    def __post_init__(self) -> None:
        """Keep the id at hand: the scheduler reads it some twenty times per job."""
        self.id = self.job.id  # type: ignore[attr-defined]  # of the record; a field here would be a default


@dataclass(slots=True)
class JobRecord(_HasId):
    """State of one job. Times are scheduler seconds; money is micro-dollars."""

    job: Job
    #: Arrival number.
    seq: int
    submitted_at: float
    phase: Phase = Phase.QUEUED
    #: Site of the current or last run; None before the first.
    site: Site | None = None
    #: Number of the current or last run; reports of other attempts are ignored.
    attempt: int = 0
    #: When it stops waiting and offloads; infinity if it waits without end.
    deadline: float = math.inf
    #: Who cancelled it, if that was not its user.
    cancelled_by: str = ""
    #: Held out of the queue by its user.
    held: bool = False
    #: Its prerequisite jobs that have not ended, and the one that failed it by not succeeding.
    awaits: tuple[str, ...] = ()
    doomed_by: str = ""
    #: Why its volumes permit no node of the cluster now; "" if they do.
    awaits_volumes: str = ""
    #: Failed runs that were followed by a retry, and the end of the present pause.
    failures: int = 0
    not_before: float = 0.0
    #: Micro-dollars: its cost when it last left for the cloud, and that of its consecutive cloud runs that
    #: failed soon after their start.
    left_micro_usd: int = 0
    failing_micro_usd: int = 0
    #: Consecutive starts refused by its site, and the last message; reset by a start.
    refusals: int = 0
    refusal: str = ""
    #: What holds up its present run, in its site's words; "" while nothing does.
    stall: str = ""
    #: Key under the queue order; fixed while queued.
    order_key: float = 0.0
    #: Its start tag under the order "fair"; assigned once.
    tag: float | None = None
    #: Start of its present wait.
    queued_at: float = 0.0
    #: Start and end of the current or last run.
    started_at: float | None = None
    ended_at: float | None = None
    #: Start of the first run.
    first_started_at: float | None = None
    slots: tuple[Slot, ...] = ()
    #: Why a STOPPING run is being stopped; None in every other phase.
    stop_why: StopReason | None = None
    #: Whether it was cancelled without a grace.
    no_grace: bool = False
    #: Cluster slots reserved for a returning job.
    reserved: tuple[Slot, ...] = ()
    returned: bool = False
    #: Target slots of a planned or ongoing move, held in the cloud; empty without a move.
    moving: tuple[Slot, ...] = ()
    #: Number of moves, and saved work of earlier runs, seconds.
    moves: int = 0
    saved_s: float = 0.0
    #: End of the present run by its progress reports; None if it gives none.
    ends_at: float | None = None
    #: Last use of its rate for learning (core/steps/interference.py); None if this run's was never used.
    observed_at: float | None = None
    #: When a cloud run becomes a candidate for return (T_max); None if it does not.
    look_at: float | None = None
    #: Why its cluster forbids it to leave for the cloud; "" if it does not.
    confined: str = ""
    #: Why it leaves for the cloud; set until it has instances.
    leaving: LeaveReason | None = None
    #: Attempts known dead without a result.
    losses: int = 0
    #: Whether it passed an earlier job of the queue at a start on the cluster.
    passed: bool = False
    exit_code: int | None = None
    #: One sentence on how it ended or why it is in its phase.
    message: str = ""
    cloud_micro_usd: int = 0
    #: Number of instances that it shares the bill of and that have not ended.
    open_bills: int = 0
    #: The wait that it was last given; None before the first.
    wait: Wait | None = None
    #: Why it is still queued although it is due to leave.
    obstacle: Obstacle | None = None

    @property
    def need(self) -> str:
        """What all its tasks ask for, such as "2 GPUs"."""
        return self.wait.need if self.wait is not None else str(self.job.resources)

    @property
    def attempt_need(self) -> str:
        """What all its tasks ask for; of an elastic gang whose attempt has fewer, what those do."""
        if not (self.job.least_tasks and 0 < len(self.slots) < len(self.job.tasks)):
            return str(self.job.resources)
        there = total(slot.resources for slot in self.slots)
        return f"{there}, {len(self.slots)} of its {len(self.job.tasks)} tasks"

    @property
    def tries_at(self) -> float:
        """When a pausing job is admitted again: at the end of its pause or at its deadline, if sooner."""
        return min(self.not_before, self.deadline)

    @property
    def had_deadline(self) -> bool:
        """Whether the wait that it was given is finite."""
        return self.wait is not None and self.wait.wait_s is not None

    @property
    def alive(self) -> bool:
        """Whether a run of the job may exist on a site."""
        return self.phase.is_alive
