"""Objects of the API server read into small values with the fields that scheduling needs.

Amounts are as in `translator.podspec`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern

from starburst.domain.constraints import Rules, Taint
from starburst.domain.resources import Others, Resources
from starburst.kube import names
from starburst.kube.interning import interned, interned_dict
from starburst.kube.operator_kinds import OperatorKind
from starburst.kube.pods.outcome import OVER, outcome
from starburst.kube.pods.resizing import resized
from starburst.kube.resources import JOBS, PODS, Object, Resource, timestamp
from starburst.kube.volumes.views import ClaimUse, claims_of
from translator.declared_features import declared
from translator.manifests.amounts import GPUS
from translator.manifests.gpus import gpu_type_of
from translator.manifests.manifest import MANAGED_BY_US
from translator.podspec import Amounts, amounts, host_ports, node_rules, pod_requests, unsupported_demands

MIB = 1024**2
PREFIX = "starburst.io/"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
#: Digits of a number in an annotation; `int` refuses texts of thousands.
MOST_DIGITS = 10


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: what it has for pods, and what restricts which pods go there."""

    name: str
    uid: str
    allocatable: Amounts
    #: With the features that it declares, as `translator.declared_features` writes them.
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    #: Not cordoned.
    schedulable: bool
    ready: bool
    #: When it stopped being Ready, epoch seconds; None if it is Ready or does not say.
    unready_since: float | None = None

    @property
    def gpu_type(self) -> str:
        """As its labels name it; "" if they do not."""
        return gpu_type_of(self.labels)


@dataclass(frozen=True, slots=True)
class Owner:
    """The object that made another one."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod: what it asks for, where it is, how it goes."""

    namespace: str
    name: str
    uid: str
    #: Only those `starburst.io/…`.
    labels: dict[str, str]
    annotations: dict[str, str]
    owner: Owner | None
    #: "" until it is bound.
    node: str
    phase: str
    deleting: bool
    requests: Amounts
    selector: tuple[tuple[str, str], ...]
    rules: Rules
    scheduler: str
    priority: int
    #: Whether lower priorities may be evicted for it (preemptionPolicy).
    preempts: bool
    #: Host ports it takes, "protocol/port".
    host_ports: tuple[str, ...]
    #: Fields with scheduling demands that are not supported.
    unsupported: tuple[str, ...]
    #: Epoch seconds.
    created_at: float
    #: Highest exit code of its ended containers; None while none has ended.
    exit_code: int | None
    #: Why it or its container is as it is: "Evicted", "OOMKilled", "ErrImagePull", …
    reason: str
    message: str
    #: The scheduler's message on why it cannot be bound; "" if there is none.
    unschedulable: str
    #: Whether it has scheduling gates: nobody may bind it yet.
    gated: bool = False
    #: Why the cluster, and not its user, takes it away (condition DisruptionTarget); "" if it does not.
    disruption: str = ""
    #: When its grace is over, epoch seconds; None if it is not being deleted.
    delete_by: float | None = None
    finalizers: tuple[str, ...] = ()
    #: The claims of its volumes.
    claims: tuple[ClaimUse, ...] = ()
    #: Types of the conditions `starburst.io/…` that it has, and their status.
    conditions: tuple[tuple[str, str], ...] = ()
    #: Its own IP address; "" while it has none.
    address: str = ""
    #: How it calls itself; "" on its node's network, where that is its node.
    hostname: str = ""
    #: When the last of its containers ended by its node's clock, epoch seconds; None if it is not over, or
    #: that is not known.
    ended_at: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def over(self) -> bool:
        """Whether its containers have ended for good, so that it uses no resources any more."""
        return self.phase in OVER

    @property
    def index(self) -> int | None:
        """Its completion index in an Indexed Job."""
        return number(self.annotations.get(COMPLETION_INDEX, ""))


@dataclass(frozen=True, slots=True)
class JobView:
    """A batch/v1 Job, or the object of an operator that is treated as a managed one."""

    namespace: str
    name: str
    uid: str
    #: Only those `starburst.io/…`.
    labels: dict[str, str]
    annotations: dict[str, str]
    scheduler: str
    parallelism: int
    suspended: bool
    deleting: bool
    #: "Complete", "Failed" or "" while it is neither.
    end: str
    #: Of that condition.
    end_reason: str
    end_message: str
    #: Epoch seconds; None before the Job controller saw it.
    started_at: float | None
    #: When that condition was written, epoch seconds; None without one.
    ended_at: float | None = None
    #: Pods that have ended, as its status says: also those that are gone.
    ended_pods: int = 0
    #: Those of them that succeeded, and that failed.
    succeeded: int = 0
    failed: int = 0
    #: Whether its pods are made with scheduling gates.
    gated: bool = False
    #: activeDeadlineSeconds; None if it has none.
    limit_s: float | None = None
    #: Whether another object made it, e.g. a CronJob.
    owned: bool = False
    #: Types of the conditions `starburst.io/…` that it has, and their status.
    conditions: tuple[tuple[str, str], ...] = ()
    #: Whether its `managedBy` names Starburst: no Job controller makes pods of it or writes its status.
    managed: bool = False
    #: Pods that live, as its status says.
    active: int = 0
    #: Pods that have to succeed; 1 if it does not say.
    completions: int = 1
    #: With one more failed pod it has failed.
    backoff_limit: int = 6
    #: The kind of an operator's object; None of a batch/v1 Job.
    operator: OperatorKind | None = None
    #: Whether that operator may make pods of it: it is not suspended.
    released: bool = False

    @property
    def withdrawn(self) -> bool:
        """Whether it is to have no pods."""
        return self.suspended or self.parallelism == 0

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


def read_node(item: Object) -> NodeView:
    """Of a v1 Node."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    ready = _condition(status, "Ready")
    return NodeView(
        name=metadata["name"],
        uid=metadata["uid"],
        allocatable=amounts(status.get("allocatable") or {}, math.floor),
        labels={**(metadata.get("labels") or {}), **declared(status)},
        taints=tuple(
            Taint(taint["key"], taint.get("value", ""), taint["effect"]) for taint in spec.get("taints") or ()
        ),
        schedulable=not spec.get("unschedulable", False),
        ready=ready.get("status") == "True",
        unready_since=None if ready.get("status") == "True" else timestamp(ready.get("lastTransitionTime")),
    )


def read_pod(item: Object) -> PodView:
    """Of a v1 Pod."""
    metadata, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    end = outcome(spec, status)
    return PodView(
        namespace=intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        labels=_ours(metadata, "labels"),
        annotations=_ours(metadata, "annotations"),
        owner=_owner(metadata),
        node=intern(spec.get("nodeName") or ""),
        phase=intern(end.phase),
        deleting="deletionTimestamp" in metadata,
        requests=interned_dict(tuple(pod_requests(resized(spec, status)).items())),
        selector=interned(tuple(sorted((spec.get("nodeSelector") or {}).items()))),
        rules=interned(node_rules(spec)),
        scheduler=intern(spec.get("schedulerName") or ""),
        priority=spec.get("priority") or 0,
        preempts=spec.get("preemptionPolicy") != "Never",
        host_ports=interned(host_ports(spec)),
        unsupported=interned(unsupported_demands(spec)),
        created_at=timestamp(metadata.get("creationTimestamp")) or 0.0,
        exit_code=end.exit_code,
        reason=intern(end.reason),
        message=end.message,
        unschedulable=_unschedulable(status),
        gated=bool(spec.get("schedulingGates")),
        disruption=_disruption(status),
        delete_by=timestamp(metadata.get("deletionTimestamp")),
        finalizers=interned(tuple(metadata.get("finalizers") or ())),
        claims=tuple(claims_of(spec, metadata["name"])),
        conditions=_our_conditions(status),
        address=status.get("podIP") or "",
        hostname="" if spec.get("hostNetwork") else spec.get("hostname") or metadata["name"],
        ended_at=timestamp(end.ended_at) or None,  # some runtimes have 1970 for "never"
    )


def read_job(item: Object) -> JobView:
    """Of a batch/v1 Job."""
    metadata, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    end = next((kind for kind in ("Complete", "Failed") if _is_so(status, kind)), "")
    condition = _condition(status, end)
    succeeded, failed = status.get("succeeded") or 0, status.get("failed") or 0
    return JobView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        labels={**_template_marks(spec), **_ours(metadata, "labels")},
        annotations=_ours(metadata, "annotations"),
        scheduler=spec["template"]["spec"].get("schedulerName", ""),
        parallelism=1 if spec.get("parallelism") is None else spec["parallelism"],
        suspended=bool(spec.get("suspend")),
        deleting="deletionTimestamp" in metadata,
        end=end,
        end_reason=condition.get("reason", ""),
        end_message=condition.get("message", ""),
        started_at=timestamp(status.get("startTime")),
        ended_at=timestamp(condition.get("lastTransitionTime")),
        ended_pods=succeeded + failed,
        succeeded=succeeded,
        failed=failed,
        gated=bool(spec["template"]["spec"].get("schedulingGates")),
        limit_s=spec.get("activeDeadlineSeconds"),
        owned=_owner(metadata) is not None,
        conditions=_our_conditions(status),
        managed=spec.get("managedBy") == MANAGED_BY_US,
        active=status.get("active") or 0,
        completions=spec.get("completions") or 1,
        backoff_limit=spec.get("backoffLimit", 6),
    )


def read_operator_object(item: Object, kind: OperatorKind) -> JobView:
    """Of an object of an operator. While it lies suspended it is Starburst's, and not taken for suspended."""
    metadata, status = item["metadata"], item.get("status") or {}
    return JobView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        labels=_ours(metadata, "labels"),
        annotations=_ours(metadata, "annotations"),
        scheduler=names.CHAKRA,  # of the pods that Starburst makes for it
        parallelism=1,
        suspended=False,
        deleting="deletionTimestamp" in metadata,
        end=kind.end(status),
        end_reason="",
        end_message="",
        started_at=None,
        owned=_owner(metadata) is not None,
        managed=True,
        operator=kind,
        released=not kind.is_suspended(item.get("spec") or {}),
    )


def resource_of(view: JobView | PodView) -> Resource:
    """How the API addresses an object."""
    if isinstance(view, PodView):
        return PODS
    return JOBS if view.operator is None else view.operator.resource


def number(text: str) -> int | None:
    """A count or an index in an annotation; None for anything else, since users write any text there."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def gpus(found: Mapping[str, int]) -> int:
    """GPUs of any maker."""
    return sum(found.get(name, 0) for name in GPUS)


def resources(found: Mapping[str, int], kind: str = "", *, up: bool = False) -> Resources:
    """Amounts as the core counts them; memory is rounded down to MiB, or up for requests (`up`)."""
    memory = found.get("memory", 0)
    mib = -(-memory // MIB) if up else memory // MIB
    return Resources(gpus(found), found.get("cpu", 0), mib, kind, others(found))


def others(found: Mapping[str, int]) -> Others:
    """The amounts that have no field of their own, by name."""
    own = ("cpu", "memory", *GPUS)
    return tuple(sorted((name, amount) for name, amount in found.items() if name not in own))


def is_copy(metadata: Object) -> bool:
    """Whether an object's marks were written on another one, as `kubectl replace --force` leaves them."""
    marked: str | None = (metadata.get("annotations") or {}).get(names.UID)
    return marked is not None and marked != metadata["uid"]


def _template_marks(spec: Object) -> dict[str, str]:
    """Whose a Job is that Starburst made, also if its own labels were stripped off: no template changes."""
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    return {key: labels[key] for key in (names.JOB, names.CONTROLLER) if key in labels}


def _ours(metadata: Object, field: str) -> dict[str, str]:
    """The keys `starburst.io/…` among its labels or annotations, without marks that are copies."""
    without = names.MARKS if is_copy(metadata) else ()
    return interned_dict(
        tuple(
            (intern(key), value)
            for key, value in (metadata.get(field) or {}).items()
            if (key.startswith(PREFIX) or key == COMPLETION_INDEX) and key not in without
        )
    )


def _owner(metadata: Object) -> Owner | None:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            kind, group = owner["kind"], owner.get("apiVersion", "").rpartition("/")[0]
            if kind == "Job" and group not in ("", "batch"):
                kind = f"Job.{group}"  # Volcano and others have kinds of that name, too
            return interned(Owner(intern(kind), owner["name"], owner["uid"]))
    return None


def _condition(status: Object, kind: str) -> Object:
    return next((found for found in status.get("conditions") or () if found["type"] == kind), {})


def _our_conditions(status: Object) -> tuple[tuple[str, str], ...]:
    found = status.get("conditions") or ()
    return interned(
        tuple((each["type"], each["status"]) for each in found if each["type"].startswith(PREFIX))
    )


def _unschedulable(status: Object) -> str:
    scheduled = _condition(status, "PodScheduled")
    return scheduled.get("message", "") if scheduled.get("status") == "False" else ""


def _disruption(status: Object) -> str:
    found = _condition(status, "DisruptionTarget")
    if found.get("status") != "True":
        return ""
    return ": ".join(filter(None, (found.get("reason"), found.get("message"))))


def _is_so(status: Object, kind: str) -> bool:
    return bool(_condition(status, kind).get("status") == "True")
