"""Reads RayJob and RayCluster of KubeRay (ray.io): head and workers as the tasks of one gang.

Source: KubeRay's API reference, ray.io/v1 as of 1.4.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starburst.domain.resources import Resources
from translator.errors import ManifestErrors
from translator.field import Field, Fields, ManifestReport
from translator.kinds.operators.roles import RoleJob, TaskRole
from translator.kinds.prelude import Prelude
from translator.kinds.ray.launch import SERVE, SUBMIT, ray_command, ray_variables, with_ray
from translator.kinds.read_kind import ReadKind
from translator.manifests.documents import Chunk, load
from translator.manifests.effective_requests import pod_resources
from translator.manifests.hints import refuse_hints
from translator.manifests.manifest import MAX_TASKS, as_json

RAY_KINDS = ("RayJob", "RayCluster")
_TOP = Fields("a manifest of Ray", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
_NO_SUBMITTER = "no pod of its own submits the program: the first task does"
_FIXED = "the number of workers is fixed: replicas"
_JOB = Fields(
    "a RayJob spec",
    read=(
        *("activeDeadlineSeconds", "backoffLimit", "entrypoint", "rayClusterSpec", "runtimeEnvYAML"),
        *("shutdownAfterJobFinishes", "submissionMode", "suspend"),
    ),
    harmless=("ttlSecondsAfterFinished",),
    noted={
        "deletionPolicy": "Ray ends with the program",
        "deletionStrategy": "Ray ends with the program",
        "entrypointNumCpus": "the program runs beside the head and takes nothing of Ray's resources",
        "entrypointNumGpus": "the program runs beside the head and takes nothing of Ray's resources",
        "entrypointResources": "the program runs beside the head and takes nothing of Ray's resources",
        "jobId": "Ray knows the job by the id of Starburst and its attempt",
        "managedBy": "Starburst runs it",
        "metadata": "is not given to Ray's job",
        "preRunningDeadlineSeconds": "starburst.io/max-wait says how long it may wait",
        "submitterConfig": _NO_SUBMITTER,
        "submitterPodTemplate": _NO_SUBMITTER,
    },
    refused={"clusterSelector": "a Ray that is there is not used; write a rayClusterSpec"},
)
_CLUSTER = Fields(
    "a RayCluster spec",
    read=("headGroupSpec", "suspend", "workerGroupSpecs"),
    harmless=("headServiceAnnotations", "rayVersion", "upgradeStrategy"),
    noted={
        "autoscalerOptions": _FIXED,
        "enableInTreeAutoscaling": _FIXED,
        "gcsFaultToleranceOptions": "when the head is lost the whole starts anew",
        "managedBy": "Starburst runs it",
    },
    refused={"authOptions": "tokens of Ray are not set; remove it, and keep others out by network policies"},
)
_NOT_OPENED = "nothing is opened to the outside"
_PARAMS = "write it under rayStartParams, whose name and JSON ray start takes"
_HEAD = Fields(
    "a head group",
    read=("rayStartParams", "template"),
    noted={"enableIngress": _NOT_OPENED, "headService": _NOT_OPENED, "serviceType": _NOT_OPENED},
    refused={"labels": _PARAMS, "resources": _PARAMS},
)
_WORKERS = Fields(
    "a worker group",
    read=("groupName", "numOfHosts", "rayStartParams", "replicas", "template"),
    harmless=("maxReplicas", "minReplicas", "scaleStrategy"),
    noted={"idleTimeoutSeconds": _FIXED, "suspend": "all groups start together"},
    refused={"labels": _PARAMS, "resources": _PARAMS},
)
#: Options of `ray start` that are passed on.
_PASSED = (
    *("labels", "memory", "num-cpus", "num-gpus", "object-store-memory", "plasma-directory", "resources"),
    *("disable-memory-monitor", "object-spilling-directory"),
)
#: Those that Starburst sets, or that have no effect on the program.
_SET = ("address", "block", "dashboard-host", "disable-usage-stats", "no-monitor", "node-ip-address")
_MODES = ("K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode")


@dataclass(frozen=True, slots=True)
class RayGroup:
    """Equal nodes of Ray."""

    name: str
    replicas: int
    spec: Field

    @property
    def template(self) -> Field:
        """The pod template."""
        return self.spec.at("template")

    @property
    def need(self) -> Resources:
        """What each node asks for; problems are found again when the Job is read."""
        spec = self.template.at("spec")
        return pod_resources(Field(spec.value, spec.path, ManifestReport("", 0)))

    def options(self) -> str:
        """Options of `ray start`, as words of a shell."""
        need = self.need
        found = {"num-gpus": str(need.gpus)}
        if need.cpus:
            found["num-cpus"] = str(math.ceil(need.cpus))  # as KubeRay rounds
        for key, each in self.spec.at("rayStartParams").entries().items():
            if key in _PASSED:
                found[key] = _unquoted(str(each.value))
            elif key not in _SET:
                each.note("is not passed on to ray start")
        return shlex.join(f"--{key}={value}" for key, value in found.items())


def read_ray_kind(document: Field) -> ReadKind:
    """Either kind as a gang; problems and notes go to the document's report."""
    document.check(_TOP)
    spec, job = document.at("spec"), {"backoffLimit": 0}
    if document.at("kind").value == "RayCluster":
        spec.note("runs until it is cancelled, and costs until then where it has left for a cloud")
        return _gang(document, spec, ray_command(SERVE), job)
    spec.check(_JOB)
    entrypoint = spec.at("entrypoint").text()
    if spec.at("submissionMode").choice(_MODES) == "InteractiveMode":
        spec.at("submissionMode").refuse("waits for a user who submits; write a RayCluster", show=False)
    elif not entrypoint:
        spec.at("entrypoint").refuse("is missing; write the command of the program")
    if spec.at("shutdownAfterJobFinishes").value is False:
        spec.at("shutdownAfterJobFinishes").note("Ray ends with the program, so that it costs nothing more")
    for field in ("activeDeadlineSeconds", "backoffLimit"):
        found = spec.at(field).whole(0)
        if found is not None:
            job[field] = found
    command = ray_command(SUBMIT, (entrypoint or "",), _runtime_env(spec.at("runtimeEnvYAML")))
    return _gang(document, spec.at("rayClusterSpec"), command, job, suspended=spec.at("suspend").flag())


def _gang(
    document: Field, cluster: Field, command: tuple[str, ...], job: dict[str, Any], *, suspended: bool = False
) -> ReadKind:
    """Head and workers as one gang whose tasks run the command."""
    cluster.check(_CLUSTER)
    groups = list(_groups(cluster))
    if not groups:
        return ReadKind({})
    for each in groups:
        refuse_hints(each.template.at("metadata"))
    if suspended or cluster.at("suspend").flag():
        job["suspend"] = True
    shared, placed = _volumes(groups), _placed(groups, native=document.report.native)
    prelude = with_ray(Prelude())
    env = ray_variables((each.replicas, each.options()) for each in placed)
    added = [{"name": name, "value": value} for name, value in env.items()]
    words = [word.replace("$(", "$$(") for word in prelude.wrap(command)]
    roles = [
        TaskRole(each.name, each.replicas, _with_program(each.template, words, added, shared))
        for each in placed
        if each.replicas
    ]
    return RoleJob(document, roles, spec=job, scales=True).read()


def _groups(cluster: Field) -> Iterator[RayGroup]:
    head = cluster.at("headGroupSpec")
    head.check(_HEAD)
    if head.at("template").value is None:
        if cluster.value is None and cluster.report.errors:
            return  # as with a clusterSelector in its place
        head.at("template").refuse("is missing; write the pod template of the head")
        return
    yield RayGroup("head", 1, head)
    for workers in cluster.at("workerGroupSpecs").items():
        workers.check(_WORKERS)
        if workers.at("template").value is None:
            workers.at("template").refuse("is missing; write the pod template of its workers")
        hosts = workers.at("numOfHosts").whole(1, MAX_TASKS) or 1
        replicas = workers.at("replicas").whole(0, MAX_TASKS)
        least = workers.at("minReplicas").whole(0, MAX_TASKS) or 0
        count = (least if replicas is None else replicas) * hosts
        yield RayGroup(workers.at("groupName").text() or "workers", count, workers)


def _placed(groups: Sequence[RayGroup], *, native: bool) -> Sequence[RayGroup]:
    """The groups, on Kubernetes without a head that has no GPUs beside workers that have some.

    All pods of a Job are alike there: the head runs in the place of the first worker.
    """
    head, *workers = groups
    alone = native and not head.need.gpus and any(each.need.gpus and each.replicas for each in workers)
    if not alone:
        return groups
    head.template.note("is not used: the head runs beside the first worker, within what that asks for")
    return [each for each in workers if each.replicas]


def _with_program(
    template: Field, words: Sequence[str], env: Sequence[Any], volumes: tuple[list[Any], list[Any]]
) -> Field:
    """The template with our program in its first container, and the volumes of all groups."""
    value = template.value
    spec = value.get("spec") if isinstance(value, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(value, dict) or not isinstance(spec, dict) or not isinstance(containers, list):
        return template
    first, *beside = containers or [None]
    if not isinstance(first, dict) or not isinstance(first.get("env") or [], list):
        return template  # which is refused when it is read
    for key in ("command", "args"):
        if first.get(key):
            template.at("spec").at("containers").items()[0].at(key).note("is Starburst's, which starts Ray")
    if first.get("lifecycle"):
        container = template.at("spec").at("containers").items()[0]
        container.at("lifecycle").note("is not used: Ray ends with its program")
    own = {key: each for key, each in first.items() if key not in ("args", "lifecycle")}
    own |= {"command": list(words), "env": [*(first.get("env") or []), *env]}
    if volumes[1]:
        own["volumeMounts"] = volumes[1]
    merged = {**spec, "containers": [own, *beside]}
    if volumes[0]:
        merged["volumes"] = volumes[0]
    return Field({**value, "spec": merged}, template.path, template.report)


def _volumes(groups: Sequence[RayGroup]) -> tuple[list[Any], list[Any]]:
    """The volumes of all groups, which every task then has, and where they are mounted."""
    specs = [each.template.at("spec") for each in groups]
    mounts = [found.at("volumeMounts") for spec in specs for found in spec.at("containers").items()[:1]]
    return _once(spec.at("volumes") for spec in specs), _once(mounts)


def _once(lists: Any) -> list[Any]:
    found: list[Any] = []
    for each in lists:
        found += [item.value for item in each.items() if item.value not in found]
    return found


def _runtime_env(field: Field) -> str:
    """The runtime environment as JSON, read as manifests are; "" is none."""
    try:
        found = load(Chunk(field.text() or "", 0), field.report.source, field.report.document)
    except ManifestErrors as bad:
        field.refuse(f"is not YAML: {bad.errors[0].line}", show=False)
        return ""
    if found is not None and not isinstance(found, dict):
        field.refuse("must be a mapping, such as env_vars: {A: b}", show=False)
    return (as_json(replace(field, value=found)) or "") if isinstance(found, dict) else ""


def _unquoted(text: str) -> str:
    """A value without the quotes that KubeRay wants around JSON: '"{\\"A\\": 1}"'."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"')
    return text
