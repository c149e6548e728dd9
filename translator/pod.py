"""A pod spec: one container, where it may run and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from translator.amounts import container_resources
from translator.container import CONTAINER, workload
from translator.field import Field, Fields
from translator.gpus import split_selector

_ONE_CONTAINER = "one container per pod; sidecars are not supported yet"
_OWN_NETWORK = "sharing a namespace of the host is not supported; remove it"

POD_SPEC = Fields(
    "a pod spec",
    read=(
        "activeDeadlineSeconds",
        "containers",
        "initContainers",
        "nodeSelector",
        "restartPolicy",
        "schedulerName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "volumes",
    ),
    harmless=(
        "automountServiceAccountToken",
        "dnsPolicy",
        "enableServiceLinks",
        "hostUsers",
        "imagePullSecrets",
        "os",
        "preemptionPolicy",
        "readinessGates",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
    ),
    noted={
        "dnsConfig": "DNS settings are not passed on",
        "hostAliases": "host names are not passed on",
        "hostname": "pods do not find one another by this name",
        "priority": "pod priorities are not used; set the annotation starburst.io/priority",
        "priorityClassName": "priority classes are not used; set the annotation starburst.io/priority",
        "runtimeClassName": "runtime classes are not passed on",
        "subdomain": "pods do not find one another by this name",
        "tolerations": "tolerations are not passed on; tainted nodes take the job only by their own rules",
    },
    refused={
        "affinity": "affinity is not supported; use nodeSelector",
        "ephemeralContainers": _ONE_CONTAINER,
        "hostIPC": _OWN_NETWORK,
        "hostNetwork": _OWN_NETWORK,
        "hostPID": _OWN_NETWORK,
        "hostnameOverride": "host names are not supported; remove it",
        "nodeName": "Starburst chooses the node; use nodeSelector with kubernetes.io/hostname",
        "overhead": "overhead is not supported; add it to the container's requests",
        "resourceClaims": "resource claims are not supported; ask for nvidia.com/gpu under limits",
        "resources": "resources of a whole pod are not supported; give them to the container",
        "schedulingGates": "scheduling gates are not supported; submit the job when it may start",
        "topologySpreadConstraints": "topology spread is not supported; remove it",
    },
)

#: Volume types without data from elsewhere.
_HOST_VOLUMES = ("emptyDir", "hostPath")
_OTHER_VOLUMES = {
    "configMap": "write the file in the command, or keep it on the nodes under a hostPath",
    "csi": "use a hostPath that every node has",
    "downwardAPI": "write the values under env",
    "ephemeral": "use emptyDir",
    "image": "use a hostPath that every node has",
    "iscsi": "use a hostPath that every node has",
    "nfs": "mount it on every node and use a hostPath",
    "persistentVolumeClaim": "use a hostPath that every node has, or storage the command reaches itself",
    "projected": "write the values under env",
    "secret": "keep the file on the nodes under a hostPath",
}
_VOLUME = Fields(
    "a volume",
    read=("name", *_HOST_VOLUMES),
    refused={kind: f"this type of volume is not supported; {mend}" for kind, mend in _OTHER_VOLUMES.items()},
)

DEFAULT_GRACE_S = 30


@dataclass(frozen=True, slots=True)
class Pod:
    """What one pod needs and runs. `grace_s` is the time between SIGTERM and SIGKILL, in seconds."""

    resources: Resources
    node_selector: tuple[tuple[str, str], ...]
    grace_s: float
    workload: Workload


def read_pod(spec: Field) -> Pod:
    """The pod a spec describes. Its restart policy is the caller's to judge."""
    spec.check(POD_SPEC)
    _check_surroundings(spec)
    grace_s = spec.at("terminationGracePeriodSeconds").whole(0)
    limit_s = spec.at("activeDeadlineSeconds").whole(1)
    container = _only_container(spec)
    resources = container_resources(container.at("resources"))
    gpu_type, node_selector = split_selector(spec.at("nodeSelector"), resources.gpus)
    return Pod(
        resources=replace(resources, gpu_type=gpu_type),
        node_selector=node_selector,
        grace_s=DEFAULT_GRACE_S if grace_s is None else grace_s,
        workload=replace(workload(container), time_limit_s=limit_s),
    )


def _only_container(spec: Field) -> Field:
    for container in spec.at("initContainers").items():
        container.refuse(
            f"the init container {_name(container)} is not supported; do its work in the command",
            show=False,
        )
    first, *others = spec.at("containers").items() or [Field(None, spec.at("containers").path, spec.report)]
    if first.value is None:
        first.refuse("is missing; a pod needs one container")
    for container in others:
        container.refuse(_ONE_CONTAINER, show=False)
    first.check(CONTAINER)
    _check_security(first.at("securityContext"))
    return first


def _name(container: Field) -> str:
    return container.at("name").text() or "without a name"


def _check_surroundings(spec: Field) -> None:
    """What lies around the container: volumes, accounts and the choice of a scheduler."""
    for volume in spec.at("volumes").items():
        volume.check(_VOLUME)
        volume.note("not mounted by the embedded cluster; paths are the host's")
    _check_security(spec.at("securityContext"))
    if spec.at("schedulerName").text() not in (None, "", "default-scheduler"):
        spec.at("schedulerName").note("Starburst places the job itself")
    for key in ("serviceAccountName", "serviceAccount"):
        if spec.at(key).text() not in (None, "", "default"):
            spec.at(key).note("the job is not given this account's credentials")


def _check_security(context: Field) -> None:
    if context.at("privileged").flag():
        context.at("privileged").refuse("privileged containers are not supported; remove it")
    elif context.entries().keys() - {"privileged"}:
        context.note("is not passed on; the command runs as the user of its node")


def check_restart_policy(spec: Field, *, of_job: bool) -> None:
    """Never, or what can be treated as Never and said so. Absent means Always to Kubernetes."""
    policy = spec.at("restartPolicy")
    if policy.value == "OnFailure":
        policy.note("a failed command is not restarted in place")
    elif policy.value == "Always":
        policy.refuse("a batch job ends; write Never")
    elif policy.value is None and of_job:
        policy.refuse("is missing; write Never")
    elif policy.value is None:
        policy.note("is absent, which is Always to Kubernetes; taken as Never, for a batch job ends")
    elif policy.value != "Never":
        policy.refuse("must be Never or OnFailure")
