"""A job as submitted: the properties that the scheduler uses, and the workload that it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from sys import intern
from typing import Any

from starburst.domain.cloud import ANY_OFFER, Offer, OfferRules
from starburst.domain.constraints import ANY_UNTAINTED, Rules, Term
from starburst.domain.cron_timing import CronTiming
from starburst.domain.phase import ALIVE as ALIVE  # noqa: PLC0414
from starburst.domain.phase import ENDS as ENDS  # noqa: PLC0414
from starburst.domain.phase import Phase as Phase  # noqa: PLC0414
from starburst.domain.phase import is_over as is_over  # noqa: PLC0414
from starburst.domain.resources import Resources, total
from starburst.domain.value import value


class CloudChoice(str, Enum):
    """`starburst.io/cloud`: whether a job may, must not, or must run in the cloud."""

    AUTO = "auto"
    NEVER = "never"
    ONLY = "only"


class Site(str, Enum):
    """Where a run takes place."""

    CLUSTER = "cluster"
    CLOUD = "cloud"


#: The tasks of a job, their node selector, affinity, tolerations, the affinity of their volumes, and whether
#: they are spread, as text: a string keeps its hash, and every pass over the queue hashes shapes. Jobs of
#: one shape fit or fail together.
Shape = str


@lru_cache(maxsize=10_000)
def _shape_of(
    tasks: tuple[Resources, ...],
    node_selector: tuple[tuple[str, str], ...],
    rules: Rules,
    volume_affinity: tuple[Term, ...],
    spread: bool,
) -> tuple[Shape, tuple[Resources, ...]]:
    """The shape, and tasks that all jobs of the shape share."""
    return repr((tasks, node_selector, rules.affinity, rules.tolerations, volume_affinity, spread)), tasks


class _HasShape:
    """A value that is derived from a job's fields: no field itself, so it is neither stored nor compared."""

    __slots__ = ("shape",)
    #: Jobs of one shape fit, or do not fit, the same free capacity.
    shape: Shape


@dataclass(frozen=True, slots=True)
class Member:
    """A job's place in an array."""

    #: Id of the array; the ids of its jobs begin with it.
    array: str
    index: int
    #: Number of jobs in the array, and how many of them may queue or run at a time; None is all.
    size: int
    at_once: int | None = None


@value
class Job(_HasShape):
    """The properties of a job that the scheduler uses; its `Workload` is not visible to policies."""

    id: str
    name: str
    #: One entry per task; the tasks of a gang start together, on one node or several.
    tasks: tuple[Resources, ...]
    user: str = ""
    queue: str = "default"
    node_selector: tuple[tuple[str, str], ...] = ()
    #: The user's estimate of the run time, seconds; None if there is none.
    runtime_estimate_s: float | None = None
    #: Its workload's time limit, seconds: no run is longer, whatever is estimated; None if there is none.
    time_limit_s: float | None = None
    #: Wait for the cluster, seconds, in place of the policy's; None uses the policy.
    max_wait_s: float | None = None
    cloud: CloudChoice = CloudChoice.AUTO
    #: Whether it saves its state on SIGTERM and resumes from it.
    checkpoint: bool = False
    #: Under the order "priority", jobs of higher priority come first.
    priority: int = 0
    #: Seconds between SIGTERM and SIGKILL.
    grace_s: float = 30.0
    #: Its place in an array, if it belongs to one.
    array: Member | None = None
    #: Ids of jobs that must succeed (`after_ok`) or end (`after_any`) before it is queued.
    after_ok: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    #: Ids of jobs that must end without success (`after_not_ok`), or start or end (`after_start`).
    after_not_ok: tuple[str, ...] = ()
    after_start: tuple[str, ...] = ()
    #: Number of retries after its command fails.
    retries: int = 0
    #: Whether it is submitted in the phase HELD.
    hold: bool = False
    #: Node affinity and tolerations.
    rules: Rules = ANY_UNTAINTED
    #: Terms of which a node of its cluster must match one, so that its volumes are there; its cluster keeps
    #: them up to date. Empty for a job without claims.
    volume_affinity: tuple[Term, ...] = ()
    #: Offers that may be rented for it.
    offer_rules: OfferRules = ANY_OFFER
    #: Name of its workload in the throughput table; "" uses the job's name.
    workload: str = ""
    #: Iterations/s alone on its instances, as measured by its user; None if unknown.
    alone_per_s: float | None = None
    #: Why its cluster forbade an adopted job to leave for the cloud at adoption; "" if it did not.
    confined: str = ""
    #: Why it cannot leave and stays on the cluster, from its manifest; "" if it could.
    stays: str = ""
    #: Whether each of its tasks takes a node, or a rented machine, that no other of its tasks is on.
    spread: bool = False
    #: With how many of its tasks, the first ones, it goes on if a node of the cluster is lost and there is no
    #: room for all, at least; 0: all of them or none.
    least_tasks: int = 0
    #: The image that it runs in on an instance; "" if it runs on the host.
    image: str = ""

    def __post_init__(self) -> None:
        """Derive the shape, which the scheduler reads a dozen times per job; share what many jobs repeat."""
        self.shape, self.tasks = _shape_of(  # type: ignore[misc]
            self.tasks, self.node_selector, self.rules, self.volume_affinity, self.spread
        )
        if self.image and not self.offer_rules.engine:
            self.offer_rules = replace(self.offer_rules, engine=True)  # type: ignore[misc]
        self.user, self.queue = intern(self.user), intern(self.queue)  # type: ignore[misc]

    @property
    def known_as(self) -> str:
        """Name of its workload in the throughput table."""
        return self.workload or self.name

    @property
    def comes_after(self) -> tuple[str, ...]:
        """All jobs that it comes after, each once."""
        if not (self.after_ok or self.after_any or self.after_not_ok or self.after_start):
            return ()
        return tuple(dict.fromkeys((*self.after_ok, *self.after_any, *self.after_not_ok, *self.after_start)))

    @property
    def resources(self) -> Resources:
        """Total demand of all tasks."""
        return self.tasks[0] if len(self.tasks) == 1 else total(self.tasks)


#: The complete demand of a task; tasks of equal demand fit the same instances.
Ask = tuple[Resources, tuple[tuple[str, Resources], ...], OfferRules]


@value
class Task:
    """One task of a job, as packers place it."""

    job_id: str
    rank: int
    resources: Resources
    #: Demand per family of offers; if set, the task runs on no other family (Eva, section 5).
    per_family: tuple[tuple[str, Resources], ...] = ()
    #: Name of its workload in the throughput table.
    workload: str = ""
    #: Estimated remaining run time, seconds; None is unknown.
    remaining_s: float | None = None
    #: Seconds without progress that a move costs: stop, save, load, start.
    move_s: float = 0.0
    #: Number of moves so far.
    moves: int = 0
    #: Offers that may be rented for its job.
    offer_rules: OfferRules = ANY_OFFER

    @property
    def key(self) -> tuple[str, int]:
        """Permanent identifier of the task."""
        return self.job_id, self.rank

    def demand(self, family: str) -> Resources | None:
        """Demand on an offer of this family; None if the task does not run there."""
        return dict(self.per_family).get(family) if self.per_family else self.resources

    def demand_on(self, offer: Offer) -> Resources | None:
        """Demand on this offer; None if the task cannot or may not run there."""
        return self.demand(offer.family) if self.offer_rules.admits(offer) else None

    @property
    def ask(self) -> Ask:
        """All properties that determine which instances hold it."""
        return self.resources, self.per_family, self.offer_rules


@dataclass(frozen=True, slots=True)
class Adopted:
    """The Kubernetes object of an adopted job."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Submitter:
    """Rights of a job's submitter in a Kubernetes cluster; the default is those of any user."""

    #: Whether the submitter administers the scheduler; policies for pods do not apply to an admin's jobs.
    admin: bool = False
    #: Namespaces and Secrets that the jobs may use besides those of their queue.
    namespaces: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    #: Kubernetes user that the scheduler impersonates when it creates objects; "" is the scheduler itself.
    kubernetes_user: str = ""
    kubernetes_groups: tuple[str, ...] = ()


@value
class JobEdit:
    """Changes of a job that waits; None leaves a field as it is."""

    priority: int | None = None
    max_wait_s: float | None = None
    runtime_estimate_s: float | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a job that change."""
        found = {
            "priority": self.priority,
            "max_wait_s": self.max_wait_s,
            "runtime_estimate_s": self.runtime_estimate_s,
        }
        return {name: changed for name, changed in found.items() if changed is not None}

    def __str__(self) -> str:
        words = {"max_wait_s": "max-wait", "runtime_estimate_s": "runtime-estimate"}
        return ", ".join(
            f"{words.get(name, name)} {changed:.15g}{' s' if name in words else ''}"
            for name, changed in self.changes.items()
        )


ANYBODY = Submitter()
#: Users with write access to the store, and admins of the HTTP API.
OWNER = Submitter(admin=True)


@dataclass(frozen=True, slots=True)
class Workload:
    """The program that each task of a job runs, with its environment."""

    #: Program and arguments, not a shell line.
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str | None = None
    #: Container image; the embedded cluster and cloud run the command on the host and ignore it.
    image: str | None = None
    #: On an instance the command runs on the host, without the image (annotation starburst.io/runtime: host).
    on_host: bool = False
    #: Seconds after which a run is ended as failed (activeDeadlineSeconds).
    time_limit_s: float | None = None
    #: The user's manifest as JSON text, for clusters that accept manifests.
    manifest: str | None = None
    #: The Kubernetes object, if the job was adopted and not submitted.
    adopted: Adopted | None = None
    #: Rights of its submitter; jobs stored before this field existed have the default rights.
    submitter: Submitter = ANYBODY
    #: Arguments for the image's own entry point; only without a command.
    args: tuple[str, ...] = ()
    #: Ranks of the tasks whose success is that of the job, the others being ended then; () is all of them.
    deciding: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, its workload, and notes to the user on values that were ignored or changed."""

    job: Job
    workload: Workload
    notes: tuple[str, ...] = ()
    #: When it is submitted, again and again, if it is a CronJob; None: once, at once.
    timing: CronTiming | None = None
    #: It comes after jobs of its user and name that are not over; resolved to their ids before it is stored.
    singleton: bool = False
