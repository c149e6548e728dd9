"""Events: the only inputs that change the scheduler's state."""

from __future__ import annotations

from enum import Enum

from starburst.domain.cloud import Offer
from starburst.domain.constraints import Term
from starburst.domain.job import Job, JobEdit, Site
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.value import value


class RunEnd(str, Enum):
    """How a run ended."""

    EXITED = "exited"  # by itself, with an exit code
    OUT_OF_TIME = "out-of-time"  # at its time limit, with an exit code
    STOPPED = "stopped"  # by a request of the scheduler
    LOST = "lost"  # known dead without a result: its machine or supervisor failed
    SUSPENDED = "suspended"  # known dead: its user keeps it from running until it is released
    DISPLACED = "displaced"  # known dead: its site took its place (eviction, drain, no room after all)
    REFUSED = "refused"  # cannot be started; a retry would not help
    NOT_STARTED = "not-started"  # known dead and never began: its site refused the start for now


@value
class JobSubmitted:
    """A new job. `ended`: (id, phase) of those of its prerequisites that have already ended."""

    job: Job
    ended: tuple[tuple[str, str], ...] = ()
    #: When, if that was long before, as of a job that is taken up out of its array; scheduler seconds.
    submitted_at: float | None = None


@value
class CancelRequested:
    """A user or an admin cancels a job; `now` (admins only) ends it without a grace."""

    job_id: str
    now: bool = False
    #: Who asks; "" is the job's user.
    by: str = ""


@value
class HoldRequested:
    """A user holds a waiting job, which then leaves the queue.

    `stops`: why the job is also taken off the cloud if it is there; "": what has left goes on.
    """

    job_id: str
    stops: str = ""
    #: As of a cancellation.
    by: str = ""


@value
class ReleaseRequested:
    """A user releases a held job."""

    job_id: str
    #: As of a cancellation.
    by: str = ""


@value
class EnterRequested:
    """A user runs a command of their own beside a task of a job, or opens a shell there."""

    job_id: str
    #: As of a cancellation.
    by: str = ""


@value
class RequeueRequested:
    """A user has a run stopped; its job queues again, with a new wait."""

    job_id: str
    #: As of a cancellation.
    by: str = ""


@value
class EditRequested:
    """A user changes a job that waits."""

    job_id: str
    edit: JobEdit


@value
class LeaveRuled:
    """The cluster now forbids a job to leave for the cloud, for the reason `why`, or permits it ("")."""

    job_id: str
    why: str


@value
class VolumesRuled:
    """The claims of a job permit nodes that match one of these terms or, if `waits` says why, none now."""

    job_id: str
    affinity: tuple[Term, ...]
    waits: str = ""


@value
class NodesChanged:
    """The complete present list of the cluster's nodes."""

    nodes: tuple[Node, ...]


@value
class OffersChanged:
    """The complete present catalog of the cloud."""

    offers: tuple[Offer, ...]


@value
class RunStarted:
    """An attempt of a job has started."""

    job_id: str
    attempt: int


@value
class RunStalled:
    """What holds up an attempt that may be alive, in its site's words; `why` "": nothing does any more."""

    job_id: str
    attempt: int
    why: str


@value
class Progress:
    """A progress report of an attempt: iterations done, total iterations, iterations per second.

    Seconds are the scheduler's.
    """

    job_id: str
    attempt: int
    done: float
    #: None if the report gives no total.
    total: float | None
    per_s: float


@value
class RunEnded:
    """An attempt of a job is over and nothing of it is alive.

    `outage`: the attempt was not started because its site failed, so other starts would fail too.
    `ended_at`: when it ended by its site, scheduler seconds; None is now.
    """

    job_id: str
    attempt: int
    end: RunEnd
    exit_code: int | None = None
    message: str = ""
    outage: bool = False
    ended_at: float | None = None


@value
class SiteSynced:
    """Every (job, attempt) that a site knows, dead or alive; an attempt that is missing here is lost."""

    site: Site
    known: frozenset[tuple[str, int]]
    #: Ids of all instances that the cloud knows, ended ones included.
    instances: frozenset[str] = frozenset()


@value
class InstanceReady:
    """An instance takes jobs; `launched_at` is the start of its bill.

    `rate` is its actual price per hour; None if the cloud does not report it.
    """

    instance_id: str
    launched_at: float
    rate: Money | None = None


@value
class InstanceFailed:
    """A launch failed and no instance exists. `sold_out`: the offer has no capacity at present.

    The cloud may still have billed it, from `launched_at` to `ended_at`; `lost`: see `InstanceGone`.
    """

    instance_id: str
    message: str
    sold_out: bool = False
    launched_at: float | None = None
    ended_at: float | None = None
    lost: tuple[tuple[int, float], ...] = ()


@value
class InstanceStalled:
    """A launch is held up, such as by a cloud that does not answer; `why` "": it goes on."""

    instance_id: str
    why: str


@value
class InstanceGone:
    """The cloud confirms that an instance is terminated; its runs are dead.

    `lost`: (machine, end of its bill, scheduler seconds) of those of several that ended before the last.
    """

    instance_id: str
    launched_at: float
    ended_at: float
    preempted: bool = False
    #: Why its launch was abandoned; "" if it was not.
    message: str = ""
    lost: tuple[tuple[int, float], ...] = ()


@value
class MachinesLost:
    """The cloud confirms that some machines of an instance have ended, while others of it run on.

    `lost`: (machine, end of its bill, scheduler seconds) of all that the instance has lost so far.
    """

    instance_id: str
    lost: tuple[tuple[int, float], ...]
    preempted: bool = False


@value
class InstanceUnreachable:
    """An instance does not answer although nobody reports its end; its runs may be alive.

    `why` is set if it does answer, but with unusable replies; `unsure` if nobody says that it runs, either.
    """

    instance_id: str
    why: str = ""
    unsure: bool = False


@value
class InstanceReachable:
    """An instance answers again."""

    instance_id: str


@value
class InstanceUnfit:
    """An instance answers and starts no work; runs that have begun there go on."""

    instance_id: str
    why: str


@value
class JobsNotKeptApart:
    """The jobs of an instance can read and end each other; `why` "": they cannot."""

    instance_id: str
    why: str


@value
class ImagesReported:
    """The images that an instance has; replaces what was reported before.

    Each with the seconds that its pull took there, None if it was not pulled for a job.
    """

    instance_id: str
    images: tuple[tuple[str, float | None], ...]


@value
class Tick:
    """No event except the passing of time."""


Event = (
    JobSubmitted
    | CancelRequested
    | HoldRequested
    | ReleaseRequested
    | EnterRequested
    | RequeueRequested
    | EditRequested
    | LeaveRuled
    | VolumesRuled
    | NodesChanged
    | OffersChanged
    | RunStarted
    | RunStalled
    | Progress
    | RunEnded
    | SiteSynced
    | InstanceReady
    | InstanceFailed
    | InstanceGone
    | MachinesLost
    | InstanceUnreachable
    | InstanceReachable
    | InstanceStalled
    | InstanceUnfit
    | ImagesReported
    | JobsNotKeptApart
    | Tick
)
