"""The permissions that each program needs in a cluster: one list for the chart's roles and for the doctor.

Every authenticated account may besides read the version of the server and review its own rights.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Permission:
    """One verb on one resource, as RBAC has it."""

    verb: str
    #: API group; "" is the core's.
    group: str
    resource: str
    subresource: str = ""
    #: What it is needed for, as it follows "it may not …".
    why: str = ""
    #: Name of the one object that it is for; "" is any.
    name: str = ""


def _all(verbs: str, group: str, path: str, why: str) -> tuple[Permission, ...]:
    resource, _, sub = path.partition("/")
    return tuple(Permission(verb, group, resource, sub, why) for verb in verbs.split())


_EVENTS = _all("create get patch", "", "events", "to say on each object what happens to it, and how often")

#: Of Chakra, in all namespaces.
CHAKRA = (
    *_all("list watch", "", "nodes", "to know where pods can go"),
    *_all("list watch", "", "pods", "to know which pods wait and what the others take"),
    *_all(
        "list watch patch", "", "persistentvolumes", "to know where volumes are and to keep them for claims"
    ),
    *_all("list watch", "storage.k8s.io", "storageclasses", "to know which claims wait for a pod's node"),
    *_all("list watch", "storage.k8s.io", "csinodes", "to know how many volumes a node takes"),
    *_all("list watch", "storage.k8s.io", "csistoragecapacities", "to know where room for volumes is left"),
)
#: The same, in each namespace with jobs.
CHAKRA_WORK = (
    *_all("list watch", "batch", "jobs", "to read the nodes that Starburst chose"),
    *_all("list watch patch", "", "persistentvolumeclaims", "to have volumes bound where their pods go"),
    *_all("get", "", "pods", "to see what became of a binding without an answer"),
    *_all("create", "", "pods/binding", "to bind pods"),
    *_all("patch", "", "pods/status", "to say in its conditions why a pod waits"),
    *_EVENTS,
)
#: The same, with --preempt.
CHAKRA_PREEMPTION = _all("delete", "", "pods", "to evict pods for those of higher priority")
#: The same, in its own namespace.
CHAKRA_LEASE = _all("get create update", "coordination.k8s.io", "leases", "so that one replica leads")

_REVIEWS = "authorization.k8s.io"
#: To watch claims: of `starburst up`, where it watches Jobs.
READ_CLAIMS = _all(
    "list watch", "", "persistentvolumeclaims", "to know which nodes the claims of jobs permit"
)
#: To watch Jobs: of `starburst up`, in each namespace with jobs, or in all namespaces at once.
READ_JOBS = _all("list watch", "batch", "jobs", "to follow runs and to adopt Jobs")
#: Of `starburst up`, in all namespaces, since the pods of all of them use the nodes.
STARBURST = (
    *_all("list watch", "", "nodes", "to know the cluster's capacity"),
    *_all("list watch", "", "pods", "to follow runs and to know what other pods take"),
    *_all("list watch", "", "persistentvolumes", "to know which nodes the volumes of jobs permit"),
    *_all("list watch", "storage.k8s.io", "storageclasses", "to know which claims wait for a pod's node"),
    *_all("list watch", "storage.k8s.io", "csinodes", "to know how many volumes a node takes"),
    *_all("list watch", "storage.k8s.io", "csistoragecapacities", "to know where room for volumes is left"),
    *_all("create", _REVIEWS, "subjectaccessreviews", "to ask which adopted jobs may leave for a cloud"),
)
#: The same, in each namespace with jobs.
STARBURST_WORK = (
    *READ_JOBS,
    *READ_CLAIMS,
    *_all("get", "", "pods", "to look at one that is to be adopted or ended"),
    *_all("create", "", "pods", "to make an adopted pod anew that comes home from the cloud"),
    *_all("patch", "", "pods", "to mark adopted pods and to say where they may go"),
    *_all("delete", "", "pods", "to end runs"),
    *_all("patch", "", "pods/status", "to write back how an adopted pod ended in the cloud"),
    *_all("get", "", "pods/log", "to keep what jobs write"),
    *_all("get create patch delete", "batch", "jobs", "to run jobs and to end them"),
    *_all("patch", "batch", "jobs/status", "to write back how an adopted Job ended in the cloud"),
    *_all("list", "", "events", "to say why pods are not made, do not start or were taken away"),
    *_EVENTS,
)
#: The same where objects of operators are adopted; without it they are left alone.
_ADOPTED_KINDS = tuple(
    permission
    for group, plurals in (
        ("jobset.x-k8s.io", "jobsets"),
        ("kubeflow.org", "mpijobs pytorchjobs tfjobs xgboostjobs"),
        ("trainer.kubeflow.org", "trainjobs"),
        ("ray.io", "rayjobs"),
    )
    for plural in plurals.split()
    for permission in (
        *_all("list watch get patch", group, plural, "to adopt objects of operators and to mark them"),
        *_all("patch", group, f"{plural}/status", "to write back how they ended"),
    )
)
OPERATOR_KINDS = (
    *_ADOPTED_KINDS,
    *_all("list watch", "ray.io", "rayclusters", "to say on each why it is not adopted"),
    *_all("list watch", "batch.volcano.sh", "jobs", "to say on each why it is not adopted"),
)
#: The same, in its own namespace.
STARBURST_LEASE = _all(
    "get create update", "coordination.k8s.io", "leases", "so that of several Starbursts one leads"
)
#: The same, for tokens with a user of the cluster: of these users and groups only.
STARBURST_IMPERSONATION = (
    *_all("impersonate", "", "users", "to make jobs in the name of their submitter"),
    *_all("impersonate", "", "groups", "to make jobs in the name of their submitter"),
)


def offload_permission(queue: str) -> Permission:
    """What the service account of an adopted job needs in its namespace, so that the job may be offloaded.

    The resource exists in no server; authorizers answer for any name.
    """
    return Permission(
        "use", "starburst.io", "queues", why="to leave with Starburst's credentials", name=queue
    )
