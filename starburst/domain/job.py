"""A job as its user asked for it: what the scheduler decides on, and what is to be run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from starburst.domain.cloud import ANY_OFFER, Offer, OfferRules
from starburst.domain.constraints import ANY_UNTAINTED, Rules, Term, Toleration
from starburst.domain.resources import Resources, total


class CloudChoice(str, Enum):
    """`starburst.io/cloud`: whether a job may, must not, or must run in the cloud."""

    AUTO = "auto"
    NEVER = "never"
    ONLY = "only"


class Site(str, Enum):
    """Where a run takes place."""

    CLUSTER = "cluster"
    CLOUD = "cloud"


class Phase(str, Enum):
    """State of a job. Which may follow which, and why: `TRANSITIONS` of core/steps/transitions.py."""

    HELD = "held"  # its user wants it out of the queue until it is released
    BLOCKED = "blocked"  # another job must come first, or its turn in an array, or a pause after a failure
    QUEUED = "queued"
    OFFLOADING = "offloading"  # its instance is being made
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"  # told to end; counts as alive until confirmed gone
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """Whether nothing can change any more."""
        return self in ENDS

    @property
    def is_alive(self) -> bool:
        """Whether a run of the job may exist somewhere."""
        return self in ALIVE


#: Phases with a run; a tuple, since members are found by identity then.
ALIVE = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
ENDS = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


def is_over(phase: str) -> bool:
    """Whether a phase, by name, is an end."""
    return phase in {end.value for end in ENDS}


#: Tasks of a gang, the node labels they need, and their rules in parts, for tuples hash faster: jobs of one
#: shape fit or fail together.
Shape = tuple[tuple[Resources, ...], tuple[tuple[str, str], ...], tuple[Term, ...], tuple[Toleration, ...]]


@dataclass(frozen=True, slots=True)
class Member:
    """A job's place in an array."""

    #: Id of the array, which its jobs' ids begin with.
    array: str
    index: int
    #: How many jobs it has, and how many of them may wait for a place or have one at a time; None is all.
    size: int
    at_once: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What the scheduler knows of a job. What it runs is its `Workload`, which no policy sees."""

    id: str
    name: str
    #: One entry per task; the tasks of a gang start together, on one node or several.
    tasks: tuple[Resources, ...]
    user: str = ""
    queue: str = "default"
    node_selector: tuple[tuple[str, str], ...] = ()
    #: The user's estimate of the run time in seconds; None where there is none.
    runtime_estimate_s: float | None = None
    #: Waits for the cluster this long, whatever the policy says; None leaves it to the policy.
    max_wait_s: float | None = None
    cloud: CloudChoice = CloudChoice.AUTO
    #: Saves its progress on SIGTERM and goes on from there.
    checkpoint: bool = False
    #: Higher goes first under the order "priority".
    priority: int = 0
    #: Seconds between SIGTERM and SIGKILL.
    grace_s: float = 30.0
    #: Set if the job is one of an array.
    array: Member | None = None
    #: Ids of jobs that must succeed, or only end, before it waits for a place.
    after_ok: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    #: How often it is run again after its command failed.
    retries: int = 0
    #: Submitted to be held until it is released.
    hold: bool = False
    #: Which nodes besides: affinity, and the taints it tolerates.
    rules: Rules = ANY_UNTAINTED
    #: Which machines may be rented for it.
    offer_rules: OfferRules = ANY_OFFER
    #: What it is in the table of how fast jobs run beside each other; "" goes by its name.
    workload: str = ""
    #: Iterations/s with machines to itself, as its user measured them; None if nobody did.
    alone_per_s: float | None = None
    #: Why the cluster it was found in did not let it leave for the cloud when it was taken in; "" if it did.
    confined: str = ""

    @property
    def known_as(self) -> str:
        """Its name in that table."""
        return self.workload or self.name

    @property
    def shape(self) -> Shape:
        """Jobs of one shape fit, or do not fit, the same free capacity."""
        return (self.tasks, self.node_selector, self.rules.affinity, self.rules.tolerations)

    @property
    def resources(self) -> Resources:
        """What all tasks need together."""
        return self.tasks[0] if len(self.tasks) == 1 else total(self.tasks)


#: What a task asks for: tasks that ask for the same fit, or do not fit, the same machines.
Ask = tuple[Resources, tuple[tuple[str, Resources], ...], OfferRules]


@dataclass(frozen=True, slots=True)
class Task:
    """One member of a job's gang, as packers place it."""

    job_id: str
    rank: int
    resources: Resources
    #: What it asks for on offers of a family; one that names families runs on no other (Eva, section 5).
    per_family: tuple[tuple[str, Resources], ...] = ()
    #: What runs, as the co-location throughput table knows it.
    workload: str = ""
    #: Seconds of run time left, by estimate; None is unknown.
    remaining_s: float | None = None
    #: Seconds without progress that a move costs: stop, save, load, start.
    move_s: float = 0.0
    #: How often it has been moved.
    moves: int = 0
    #: Which machines its job may have.
    offer_rules: OfferRules = ANY_OFFER

    @property
    def key(self) -> tuple[str, int]:
        """Names the task as long as it lives."""
        return self.job_id, self.rank

    def demand(self, family: str) -> Resources | None:
        """What it asks for on an offer of this family; None if it does not run there."""
        return dict(self.per_family).get(family) if self.per_family else self.resources

    def demand_on(self, offer: Offer) -> Resources | None:
        """What it asks for on this offer; None if it does not or may not run there."""
        return self.demand(offer.family) if self.offer_rules.admits(offer) else None

    @property
    def ask(self) -> Ask:
        """All that decides which machines hold it."""
        return self.resources, self.per_family, self.offer_rules


@dataclass(frozen=True, slots=True)
class Adopted:
    """The object of a Kubernetes cluster that a job was found as."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Submitter:
    """What the one who handed a job in may ask of a Kubernetes cluster; by default what everybody may."""

    #: Rules over the scheduler, so no policy for pods binds its jobs.
    admin: bool = False
    #: Namespaces and Secrets that its jobs may use besides those of their queue.
    namespaces: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    #: Whom the cluster is told to take for the maker of its objects; "" is the scheduler itself.
    kubernetes_user: str = ""
    kubernetes_groups: tuple[str, ...] = ()


ANYBODY = Submitter()
#: Whoever can write the store, and admins of the HTTP API.
OWNER = Submitter(admin=True)


@dataclass(frozen=True, slots=True)
class Workload:
    """What each task of a job runs."""

    #: Program and arguments, not a shell line.
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str | None = None
    #: Container image; the embedded cluster and cloud run the command on the host and ignore it.
    image: str | None = None
    #: On a rented machine it runs as it is, without its image (annotation starburst.io/runtime: host).
    on_host: bool = False
    #: Seconds after which a run is ended as failed (activeDeadlineSeconds).
    time_limit_s: float | None = None
    #: The user's own manifest as JSON text, for clusters that take manifests.
    manifest: str | None = None
    #: Set if the job was found in the cluster and not submitted.
    adopted: Adopted | None = None
    #: What the one who submitted it may; jobs from before this was kept are anybody's.
    submitter: Submitter = ANYBODY


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, what it runs, and things the user should hear about that were not kept."""

    job: Job
    workload: Workload
    notes: tuple[str, ...] = ()
