"""The scheduler's record of a job: all that changes about it, and all that a restart needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from starburst.core.model.actions import Slot
from starburst.core.model.phases import LeaveReason, Obstacle, StopReason, Wait
from starburst.domain.job import Job, Phase, Site


@dataclass(slots=True)
class JobRecord:
    """State of one job. Times are scheduler seconds; money is micro-dollars."""

    job: Job
    #: Position in order of arrival.
    seq: int
    submitted_at: float
    phase: Phase = Phase.QUEUED
    #: Site of the current or last run; None before the first.
    site: Site | None = None
    #: Number of the current or last run; a report of any other is stale.
    attempt: int = 0
    #: Leaves for the cloud then; infinite means it waits for room.
    deadline: float = math.inf
    #: Its user keeps it out of the queue.
    held: bool = False
    #: Jobs that it comes after and that are not over, and the one whose end means that it never runs.
    awaits: tuple[str, ...] = ()
    doomed_by: str = ""
    #: Runs of its command that failed and were followed by another try; it queues no sooner than this.
    failures: int = 0
    not_before: float = 0.0
    #: How often in a row its site would not start it, and what that said last; forgotten when it starts.
    refusals: int = 0
    refusal: str = ""
    #: Size key under the queue order; fixed while queued.
    order_key: float = 0.0
    #: Its start tag under the order "fair", which it keeps.
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
    #: It was cancelled without a grace.
    no_grace: bool = False
    #: Slots held on the cluster for a job on its way home.
    reserved: tuple[Slot, ...] = ()
    returned: bool = False
    #: Its slots after a move that is under way, held for it in the cloud; empty if it stays.
    moving: tuple[Slot, ...] = ()
    #: How often it has moved, and the seconds it had run before the last move.
    moves: int = 0
    saved_s: float = 0.0
    #: When the present run ends by its own account; None if it gives none.
    ends_at: float | None = None
    #: When its rate was last learnt from (core/steps/interference.py); None if nothing of this run was.
    observed_at: float | None = None
    #: From when on a cloud run is looked at for coming home; None if never.
    look_at: float | None = None
    #: Why its cluster does not let it leave for the cloud; "" if it does.
    confined: str = ""
    #: Why it leaves for the cloud, until it has a machine there.
    leaving: LeaveReason | None = None
    #: Attempts known dead without a result.
    losses: int = 0
    #: Overtook an earlier job in the queue at its last start.
    passed: bool = False
    exit_code: int | None = None
    #: One sentence on how it ended or why it stands where it stands.
    message: str = ""
    cloud_micro_usd: int = 0
    #: Machines whose bill it shares and which have not ended yet.
    open_bills: int = 0
    #: The wait that it was given; None if it was given none yet.
    wait: Wait | None = None
    #: Why it still waits though it should be in the cloud.
    obstacle: Obstacle | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def tries_at(self) -> float:
        """When a job that pauses goes on: at the end of its pause, or sooner, where its wait is over."""
        return min(self.not_before, self.deadline)

    @property
    def had_deadline(self) -> bool:
        """Whether the wait that it was given has an end."""
        return self.wait is not None and self.wait.wait_s is not None

    @property
    def alive(self) -> bool:
        """Whether a run of it may exist somewhere."""
        return self.phase.is_alive
