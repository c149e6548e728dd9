"""What can happen to the scheduler. Nothing else changes its state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Site
from starburst.domain.money import Money
from starburst.domain.node import Node


class RunEnd(str, Enum):
    """How a run came to its end."""

    EXITED = "exited"  # by itself, with an exit code
    OUT_OF_TIME = "out-of-time"  # at its time limit, with an exit code
    STOPPED = "stopped"  # because it was told to
    LOST = "lost"  # known dead, without a result: its machine or supervisor went away
    DISPLACED = "displaced"  # known dead: its site took its place away (drain, preemption, no room after all)
    REFUSED = "refused"  # could not be started at all; trying again would not help
    NOT_STARTED = "not-started"  # known not to be alive, and never began: its site would not have it for now


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A new job. `ended`: how those of the jobs that it comes after ended that are over, by id and phase."""

    job: Job
    ended: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Its user no longer wants the job; or an admin, who may have it end `now`, without a grace."""

    job_id: str
    now: bool = False


@dataclass(frozen=True, slots=True)
class HoldRequested:
    """A job that waits is to be kept out of the queue."""

    job_id: str


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    """A job that is held may wait again."""

    job_id: str


@dataclass(frozen=True, slots=True)
class LeaveRuled:
    """Whether its cluster lets a job leave for the cloud from now on: why not, or ""."""

    job_id: str
    why: str


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """The cluster's nodes, all of them, as they are now."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class OffersChanged:
    """The cloud's catalog, all of it, as it is now."""

    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """An attempt of a job runs."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt is, by its own account: so many iterations of so many, at so many a second.

    Seconds are the scheduler's.
    """

    job_id: str
    attempt: int
    done: float
    #: None if it does not say.
    total: float | None
    per_s: float


@dataclass(frozen=True, slots=True)
class RunEnded:
    """An attempt of a job is over and nothing of it is alive.

    `outage`, of one that was not started: its site failed, so others would fare alike.
    """

    job_id: str
    attempt: int
    end: RunEnd
    exit_code: int | None = None
    message: str = ""
    outage: bool = False


@dataclass(frozen=True, slots=True)
class SiteSynced:
    """Every (job, attempt) a site knows of, dead or alive: what was started there and is not here is lost."""

    site: Site
    known: frozenset[tuple[str, int]]
    #: Ids of every machine the cloud knows of, ended ones too.
    instances: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InstanceReady:
    """A rented machine takes jobs; `launched_at` is when its bill began.

    `rate` is what it really costs per hour, if the cloud tells.
    """

    instance_id: str
    launched_at: float
    rate: Money | None = None


@dataclass(frozen=True, slots=True)
class InstanceFailed:
    """A launch came to nothing; no machine exists. `sold_out`: the offer has no capacity just now.

    It may have been billed all the same, from `launched_at` to `ended_at`.
    """

    instance_id: str
    message: str
    sold_out: bool = False
    launched_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class InstanceGone:
    """The cloud confirms that a machine is terminated; whatever ran there is dead."""

    instance_id: str
    launched_at: float
    ended_at: float
    preempted: bool = False
    #: Why its launch was given up, if it was.
    message: str = ""


@dataclass(frozen=True, slots=True)
class InstanceUnreachable:
    """Nobody gets through to a machine that, by its cloud, runs: what runs there may be alive.

    `why` is set if it answers, but not so that it could be worked with.
    """

    instance_id: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class InstanceReachable:
    """A machine answers again."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class InstanceUnfit:
    """A machine answers and takes no work: what runs there goes on, and nothing new will start there."""

    instance_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened but time."""


Event = (
    JobSubmitted
    | CancelRequested
    | HoldRequested
    | ReleaseRequested
    | LeaveRuled
    | NodesChanged
    | OffersChanged
    | RunStarted
    | Progress
    | RunEnded
    | SiteSynced
    | InstanceReady
    | InstanceFailed
    | InstanceGone
    | InstanceUnreachable
    | InstanceReachable
    | InstanceUnfit
    | Tick
)
