"""Reads a pod spec: containers, resources, placement rules and time limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starburst.domain.constraints import Rules
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from translator.carried import Carried
from translator.embedded_nodes import ruled, selected
from translator.field import Field, Fields
from translator.manifests.amounts import AMD, as_resources, container_amounts
from translator.manifests.effective_requests import pod_resources
from translator.manifests.gpus import split_selector
from translator.manifests.node_rules import read_rules
from translator.manifests.places import Place, note_assumptions, read_place
from translator.tasks.container import CONTAINER, workload
from translator.tasks.containers.capabilities import check_group, check_security
from translator.tasks.storage.mounts import read_mounts
from translator.tasks.storage.volume_types import check_volumes

_ONE_CONTAINER = "one container per pod; sidecars are not supported yet"
_OWN_NETWORK = "sharing a namespace of the host is not supported; remove it"

POD_SPEC = Fields(
    "a pod spec",
    read=(
        "activeDeadlineSeconds",
        "affinity",
        "containers",
        "initContainers",
        "nodeSelector",
        "overhead",
        "resources",
        "restartPolicy",
        "schedulerName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
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
        "evictionResponders": "nobody is asked before a run is ended",
        "hostAliases": "host names are not passed on",
        "hostname": "pods do not find one another by this name",
        "priority": "pod priorities are not used; set the annotation starburst.io/priority",
        "priorityClassName": "priority classes are not used; set the annotation starburst.io/priority",
        "runtimeClassName": "runtime classes are not passed on",
        "schedulingGroup": "Starburst starts the tasks of a job together by itself",
        "subdomain": "pods do not find one another by this name",
        "workloadRef": "Starburst starts the tasks of a job together by itself",
    },
    refused={
        "ephemeralContainers": _ONE_CONTAINER,
        "hostIPC": _OWN_NETWORK,
        "hostNetwork": _OWN_NETWORK,
        "hostPID": _OWN_NETWORK,
        "hostnameOverride": "host names are not supported; remove it",
        "nodeName": "Starburst chooses the node; use nodeSelector with kubernetes.io/hostname",
        "resourceClaims": "resource claims are not supported; ask for nvidia.com/gpu under limits",
        "schedulingGates": "scheduling gates are not supported; submit the job when it may start",
    },
    kept=(
        "dnsConfig",
        "evictionResponders",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostname",
        "hostnameOverride",
        "runtimeClassName",
        "subdomain",
    ),
)
#: Pod-level amounts, which are part of a task's requests on Kubernetes and refused elsewhere.
_AMOUNTS = {
    "overhead": "overhead is not supported; add it to the container's requests",
    "resources": "resources of a whole pod are not supported; give them to the container",
}

DEFAULT_GRACE_S = 30


@dataclass(frozen=True, slots=True)
class Pod:
    """Requirements and workload of a pod. `grace_s` is the time between SIGTERM and SIGKILL, seconds."""

    resources: Resources
    node_selector: tuple[tuple[str, str], ...]
    rules: Rules
    grace_s: float
    workload: Workload
    #: What its node selector and affinity say, and whether it asks for GPUs of AMD.
    place: Place
    wants_amd: bool


def read_pod(spec: Field) -> Pod:
    """The pod that a spec describes. The caller checks the restart policy."""
    spec.check(POD_SPEC)
    _check_surroundings(spec)
    grace_s = spec.at("terminationGracePeriodSeconds").whole(0)
    limit_s = spec.at("activeDeadlineSeconds").whole(1)
    container = _main_container(spec)
    carried = _carried(spec)
    if carried is not None:
        in_container = bool(container.at("image").value) and not spec.report.on_host
        read_mounts(spec, container, carried.stores, in_container=in_container)
    resources = _resources(spec, container)
    gpu_type, node_selector = split_selector(spec.at("nodeSelector"), resources.gpus)
    rules, place = read_rules(spec), read_place(spec)
    if spec.report.native:  # kubelets compare every label as it is written, also that of a GPU type
        node_selector = tuple(sorted((each.written.key, each.written.values[0]) for each in place.selector))
    else:
        node_selector, rules = selected(node_selector), ruled(rules)
    note_assumptions(place)
    return Pod(
        resources=replace(resources, gpu_type=gpu_type),
        place=place,
        wants_amd=any(map(_wants_amd, spec.at("containers").items())),
        node_selector=node_selector,
        rules=rules,
        grace_s=DEFAULT_GRACE_S if grace_s is None else grace_s,
        workload=replace(workload(container), time_limit_s=limit_s),
    )


def _carried(spec: Field) -> Carried | None:
    """What an offloadable job gets from its Kubernetes cluster; None for other jobs."""
    return spec.report.carries if spec.report.native and spec.report.leaves else None


def _resources(spec: Field, container: Field) -> Resources:
    if spec.report.native:
        return pod_resources(spec)
    for key, mend in _AMOUNTS.items():
        if spec.at(key).value:
            spec.at(key).refuse(mend)
    return as_resources(container_amounts(container.at("resources")), container.at("resources"))


def _wants_amd(container: Field) -> bool:
    return any(container.at("resources").at(side).at(AMD).value for side in ("limits", "requests"))


def _main_container(spec: Field) -> Field:
    """The first container, which is the one that runs after an offload; others are refused or noted."""
    for container in spec.at("initContainers").items():
        container.refuse_away(
            f"the init container {_name(container)} is not supported; do its work in the command",
            f"the init container {_name(container)} does not go along to a cloud",
            show=False,
            part=f"the init container {_name(container)}",
        )
        _check_beside(container)
    first, *others = spec.at("containers").items() or [Field(None, spec.at("containers").path, spec.report)]
    if first.value is None:
        first.refuse("is missing; a pod needs one container")
    for container in others:
        container.refuse_away(
            _ONE_CONTAINER,
            f"the container {_name(container)} does not go along to a cloud",
            show=False,
            part=f"the container {_name(container)}",
        )
        _check_beside(container)
    first.check(CONTAINER)
    _check_security(first.at("securityContext"))
    if first.report.native and not first.report.on_host:  # else nothing of either is passed on
        check_group(spec.at("securityContext"), first.at("securityContext"))
    return first


def _check_beside(container: Field) -> None:
    """Check a container that runs on the cluster only; on the embedded one it is refused anyway."""
    if container.value is None:
        container.refuse("is empty; remove it")
    if container.report.native:
        container.staying().check(CONTAINER)
        workload(container.staying())


def _name(container: Field) -> str:
    return container.at("name").text() or "without a name"


def _check_surroundings(spec: Field) -> None:
    """Check volumes, security context, scheduler and service account."""
    check_volumes(spec, carried=_carried(spec) is not None)
    _check_security(spec.at("securityContext"))
    if spec.at("os").at("name").value == "windows":
        spec.at("os").refuse_away(
            "jobs run on Linux; remove it", "machines that are rented run Linux", show=False, part="Windows"
        )
    if spec.at("schedulerName").text() not in (None, "", "default-scheduler", "chakra"):
        spec.at("schedulerName").note("Starburst places the job itself")
    for key in ("serviceAccountName", "serviceAccount"):
        if spec.at(key).text() not in (None, "", "default"):
            spec.at(key).note_away("the job is not given this account's credentials")


def _check_security(context: Field) -> None:
    if context.at("privileged").flag():
        context.at("privileged").refuse_away("privileged containers are not supported; remove it")
    elif not context.report.native or context.report.on_host:
        if context.entries().keys() - {"privileged"}:
            context.note_away("is not passed on; the command runs as the user of its node")
    else:
        check_security(context)


def check_restart_policy(spec: Field, *, of_job: bool) -> None:
    """Accept Never, and OnFailure, which but for Kubernetes is taken as Never, with a note. An absent
    policy of a Pod, Always in Kubernetes, is taken as Never with a note. Others are refused.
    """
    policy = spec.at("restartPolicy")
    if policy.value == "OnFailure":
        policy.note_away("a failed command is not restarted in place")
    elif policy.value == "Always":
        policy.refuse("a batch job ends; write Never")
    elif policy.value is None and of_job:
        policy.refuse("is missing; write Never")
    elif policy.value is None:
        policy.note("is absent, which is Always to Kubernetes; taken as Never, for a batch job ends")
    elif policy.value != "Never":
        policy.refuse("must be Never or OnFailure")
