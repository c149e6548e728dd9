"""The object a run becomes: the user's own manifest, with what Starburst and Chakra need written on it."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from typing import Any

from starburst.domain.job import Adopted, Site, Workload
from starburst.kube import names
from starburst.kube.features import Features
from starburst.kube.objects import JobView
from starburst.kube.operator_kinds import resource_named
from starburst.kube.resources import Object
from starburst.runs.files import directory_name
from starburst.runs.peers import POD_PORT, gang_variables
from starburst.runs.ports import Run
from translator.manifests.manifest import MANAGED_BY_US, SERVERS_METADATA
from translator.manifests.tenancy import CHECKPOINT_VOLUME

#: Where a job finds its checkpoints, if the config names a volume for them.
CHECKPOINT_DIR = "/starburst/checkpoints"
#: Where the pods of a gang find the addresses of all, and the volume of that file.
HOSTS_FILE, _HOSTS_VOLUME = "/starburst/peers/hosts", "starburst-peers"
#: A finished Job is kept this long, unless its user says otherwise.
KEEP_S = 7 * 86_400
#: What MASTER_ADDR is for pods, which have no names: Chakra writes it on each when it binds it.
_MASTER = {"fieldRef": {"fieldPath": f"metadata.annotations['{names.MASTER_ADDR}']"}}
#: Annotation of a user: how often a job is run again.
_RETRIES = "starburst.io/retries"
#: Of a Job: its pods' host names, with a dash and an index behind it, are labels of at most 63 letters.
MAX_NAME = 63 - len("-9999")

#: Written by servers and by kubectl; a copy under another name must not carry them.
_OTHERS_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
_OTHERS_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration",)


def object_name(job_id: str, attempt: int) -> str:
    """Derived from job and attempt, so that a retry finds its own. The end of an id makes it unique."""
    suffix = f"-{attempt}"
    return job_id[-(MAX_NAME - len(suffix)) :].lstrip("-.") + suffix


def node_names(run: Run) -> str:
    """The value of the annotation with the node of each rank, which Chakra obeys."""
    return ",".join(slot.where for slot in sorted(run.slots, key=lambda slot: slot.rank))


def namespace_of(workload: Workload, default: str) -> str:
    """Where a submitted job's object goes."""
    if workload.adopted is not None:
        return workload.adopted.namespace
    namespace: str | None = _manifest(workload)["metadata"].get("namespace")
    return namespace or default


def job_object(
    run: Run,
    *,
    namespace: str,
    controller: str,
    decision: str,
    indexed: bool,
    checkpoints: Mapping[str, Any] | None,
    reporting: Mapping[str, str] = {},
) -> Object:
    """A batch/v1 Job for one run; a Pod's spec becomes the template of one.

    `reporting` are variables that say where it says how far it is, unless its user says so.
    """
    manifest = _manifest(run.workload)
    metadata, spec = manifest["metadata"], manifest["spec"]
    if manifest["kind"] == "Pod":
        spec = {"backoffLimit": 0, "template": {"metadata": copy.deepcopy(metadata), "spec": spec}}
        for field in ("name", "generateName", "namespace"):
            spec["template"]["metadata"].pop(field, None)
        spec["template"]["spec"].setdefault("restartPolicy", "Never")
        spec["template"]["spec"].pop("nodeName", None)
    for field in ("selector", "manualSelector", "suspend", "managedBy"):
        spec.pop(field, None)
    tasks = len(run.slots)
    in_turn = run.job.array is None and (spec.get("completions") or 0) > len(run.job.tasks)
    spec.update(parallelism=tasks, completions=spec["completions"] if in_turn else tasks)
    ttl = _lengthen_ttl(spec)
    if _is_tried_by_us(run, metadata, in_turn=in_turn):
        spec["backoffLimit"] = 0
    if run.job.array is not None:
        spec.pop("completionMode", None)  # the array's index is not the cluster's to give
    with_index = run.is_gang and indexed and not in_turn
    if with_index:
        spec["completionMode"] = "Indexed"
    marks: dict[str, Any] = {"indexed": with_index, "in_turn": in_turn, "checkpoints": checkpoints}
    _mark_template(spec["template"], run, controller, reporting, **marks)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": object_name(run.job.id, run.attempt),
            "namespace": namespace,
            **_owned_by(run.workload.adopted),
            "labels": {
                **_without(metadata.get("labels"), _OTHERS_LABELS),
                names.QUEUE: run.job.queue,
                names.JOB: run.job.id,
                names.CONTROLLER: controller,
            },
            "annotations": {
                **_without(metadata.get("annotations"), _OTHERS_ANNOTATIONS),
                **placed(run, decision),
                **ttl,
            },
        },
        "spec": spec,
    }


def _is_tried_by_us(run: Run, metadata: Object, *, in_turn: bool) -> bool:
    """Whether Starburst runs a job again itself, here or in the cloud, or nobody does; else the cluster does.

    `translator.manifests.manifest` says how often. Without a backoffLimit the cluster would try six times.
    """
    if run.job.retries or run.workload.adopted is not None:
        return bool(run.job.retries)
    return (run.is_gang and not in_turn) or _RETRIES in (metadata.get("annotations") or {})


def _lengthen_ttl(spec: Object) -> dict[str, str]:
    """Keep a Job until its end is stored; the annotation that has the user's ttl if that is shorter.

    What is no number is the server's to refuse.
    """
    ttl_s = spec.get("ttlSecondsAfterFinished")
    is_short = isinstance(ttl_s, int) and ttl_s < KEEP_S
    if ttl_s is None or is_short:
        spec["ttlSecondsAfterFinished"] = KEEP_S
    return {names.TTL: str(ttl_s)} if is_short else {}


def placed(run: Run, decision: str) -> dict[str, str]:
    """Annotations of an object whose run was placed; without a decision the last one stays."""
    marks = {names.ATTEMPT: str(run.attempt), names.NODES: node_names(run)}
    return {**marks, names.DECISION: decision} if decision else marks


def is_managed(workload: Workload) -> bool:
    """Whether a user made an object for Starburst to manage: its runs have Jobs of their own."""
    text = workload.manifest or ""
    if workload.adopted is not None and workload.adopted.kind not in ("Job", "Pod"):
        return True  # an operator's, which lies suspended
    if workload.adopted is None or MANAGED_BY_US not in text:
        return False  # most jobs: nothing is parsed
    return bool(_manifest(workload)["spec"].get("managedBy") == MANAGED_BY_US)


def _owned_by(adopted: Adopted | None) -> Object:
    """The metadata by which the Job of a run goes with the Job that it is run for."""
    if adopted is None:
        return {}
    version = resource_named(adopted.kind).api_version
    owner = {"apiVersion": version, "kind": adopted.kind, "name": adopted.name, "uid": adopted.uid}
    return {"ownerReferences": [{**owner, "blockOwnerDeletion": False}]}


def restarts_in_place(workload: Workload) -> bool:
    """Whether containers that fail are started again in their pod."""
    manifest = _manifest(workload)
    spec = manifest["spec"] if manifest["kind"] == "Pod" else manifest["spec"]["template"]["spec"]
    return bool(spec.get("restartPolicy") == "OnFailure")


def withdrawn(features: Features) -> Object:
    """The patch that takes a Job's pods out of the cluster and leaves the Job; no limit runs meanwhile."""
    paused = {"suspend": True} if features.suspend else {"parallelism": 0}
    return {"spec": {**paused, "activeDeadlineSeconds": None}}


def resumed(view: JobView, tasks: int, time_limit_s: float | None, features: Features, now: float) -> Object:
    """What makes a Job run again. Its deadline counts from its start time, so the wait is added."""
    spec: Object = {"parallelism": tasks}
    if features.suspend:
        spec["suspend"] = False
    if time_limit_s is not None:
        waited_s = 0.0 if view.suspended or view.started_at is None else max(0.0, now - view.started_at)
        spec["activeDeadlineSeconds"] = math.ceil(waited_s + time_limit_s)
    return spec


def made_anew(run: Run, *, controller: str, decision: str) -> Object:
    """An adopted Job or Pod anew, under its old name, after its site ended an earlier run of it."""
    manifest = _manifest(run.workload)
    found, spec = manifest["metadata"], manifest["spec"]
    owners = {"ownerReferences": found["ownerReferences"]} if found.get("ownerReferences") else {}
    metadata: Object = {**_without(found, SERVERS_METADATA), **owners}
    metadata["labels"] = {
        **_without(metadata.get("labels"), _OTHERS_LABELS),
        names.JOB: run.job.id,
        names.CONTROLLER: controller,
    }
    metadata["annotations"] = {
        **_without(metadata.get("annotations"), _OTHERS_ANNOTATIONS),
        names.ADOPTED: "true",
        **placed(run, decision),
    }
    if manifest["kind"] == "Pod":
        spec.pop("nodeName", None)
    else:
        if not spec.get("manualSelector"):
            spec.pop("selector", None)
            of_pods = spec["template"].get("metadata") or {}
            of_pods["labels"] = _without(of_pods.get("labels"), _OTHERS_LABELS)
            spec["template"]["metadata"] = of_pods
        spec["parallelism"] = len(run.slots)
        spec.pop("suspend", None)
        if (ttl_s := spec.pop("ttlSecondsAfterFinished", None)) is not None:
            metadata["annotations"][names.TTL] = str(ttl_s)
    return {**_without(manifest, ("status",)), "metadata": metadata, "spec": spec}


def _manifest(workload: Workload) -> Object:
    """As submitted; made up of the workload if the job came from somewhere without manifests."""
    if workload.manifest is not None:
        manifest: Object = json.loads(workload.manifest)
        return manifest
    container: Object = {"name": "main", "image": workload.image or ""}
    if workload.command:
        container["command"] = list(workload.command)
    if workload.working_dir:
        container["workingDir"] = workload.working_dir
    container["env"] = [{"name": name, "value": value} for name, value in workload.env]
    spec: Object = {"restartPolicy": "Never", "containers": [container]}
    job: Object = {"backoffLimit": 0, "template": {"metadata": {}, "spec": spec}}
    if workload.time_limit_s is not None:
        job["activeDeadlineSeconds"] = int(workload.time_limit_s)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": job}


def _mark_template(
    template: Object,
    run: Run,
    controller: str,
    reporting: Mapping[str, str],
    *,
    indexed: bool,
    in_turn: bool,
    checkpoints: Mapping[str, Any] | None,
) -> None:
    metadata = template.get("metadata") or {}
    template["metadata"] = {
        **metadata,
        "labels": {
            **_without(metadata.get("labels"), _OTHERS_LABELS),
            names.JOB: run.job.id,
            names.CONTROLLER: controller,
        },
        "annotations": {**(metadata.get("annotations") or {}), names.ATTEMPT: str(run.attempt)},
    }
    spec = template["spec"]
    spec["schedulerName"] = names.CHAKRA
    spec.setdefault("restartPolicy", "Never")
    ours = _environment(run, indexed=indexed, with_checkpoints=checkpoints is not None)
    peers = {} if in_turn else _peers(run, spec.get("subdomain") if indexed else None)
    if peers.get("MASTER_ADDR") == _MASTER:
        template["metadata"]["annotations"].setdefault(names.MASTER_ADDR, "")
    if peers:
        template["metadata"]["annotations"].setdefault(names.HOSTS, "")
        _mount_hosts(spec)
    for container in spec["containers"]:
        taken = {variable["name"] for variable in ours}
        theirs = [variable for variable in container.get("env") or () if variable["name"] not in taken]
        if all(variable["name"] not in reporting for variable in theirs):
            theirs = [*_variables(reporting), *theirs]
        named = {variable["name"] for variable in theirs}
        told = _variables({name: value for name, value in peers.items() if name not in named})
        container["env"] = [*ours, *told, *theirs]  # ours first, so that theirs may refer to them
    if checkpoints is not None:
        spec["volumes"] = [*(spec.get("volumes") or ()), {"name": CHECKPOINT_VOLUME, **checkpoints}]
        mount = {
            "name": CHECKPOINT_VOLUME,
            "mountPath": CHECKPOINT_DIR,
            "subPath": directory_name(run.job.id),
        }
        for container in spec["containers"]:
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def _mount_hosts(spec: Object) -> None:
    """The file with the addresses of a gang, which its kubelet keeps as the annotation is."""
    item = {"path": "hosts", **_field(f"metadata.annotations['{names.HOSTS}']")}
    spec["volumes"] = [
        *(spec.get("volumes") or ()),
        {"name": _HOSTS_VOLUME, "downwardAPI": {"items": [item]}},
    ]
    mount = {"name": _HOSTS_VOLUME, "mountPath": HOSTS_FILE.rpartition("/")[0], "readOnly": True}
    for container in spec["containers"]:
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def _environment(run: Run, *, indexed: bool, with_checkpoints: bool) -> list[Object]:
    """Variables that a run gets on every site."""
    rank = _field(f"metadata.annotations['{names.RANK}']")
    variables: dict[str, Any] = {
        "STARBURST_JOB": run.job.id,
        "STARBURST_ATTEMPT": str(run.attempt),
        "STARBURST_SITE": Site.CLUSTER.value,
        "STARBURST_NODE": _field("spec.nodeName"),
        "STARBURST_RANK": rank,
        "STARBURST_WORLD_SIZE": str(len(run.slots)),
    }
    if not indexed:
        variables["JOB_COMPLETION_INDEX"] = rank
    if run.job.array is not None:
        variables |= run.place_in_array if run.is_gang else run.indices(0)
    if with_checkpoints:
        variables["STARBURST_CHECKPOINT_DIR"] = CHECKPOINT_DIR
    return _variables(variables)


def _peers(run: Run, subdomain: str | None) -> dict[str, Any]:
    """Variables with the peers of a task of a gang, unless its user sets them; none for an array's job.

    `subdomain`: the user's headless Service, in which pods of an Indexed Job have names. Without one, Chakra
    writes the address of the first pod on the others when it binds them.
    """
    size = len(run.slots)
    if not run.is_gang:
        return {}
    rank = _field(f"metadata.annotations['{names.RANK}']")
    known: dict[str, Any] = {**gang_variables("", POD_PORT, size, "")}
    first = f"{object_name(run.job.id, run.attempt)}-0.{subdomain}"
    known["MASTER_ADDR"] = first if subdomain else _MASTER
    known |= {"RANK": rank, "NODE_RANK": rank, "SKYPILOT_NODE_RANK": rank, "SKYPILOT_NUM_NODES": str(size)}
    known["STARBURST_HOSTS_FILE"] = HOSTS_FILE
    known["SKYPILOT_NUM_GPUS_PER_NODE"] = str(run.slots[0].resources.gpus)
    return known


def _variables(variables: Mapping[str, Any]) -> list[Object]:
    return [
        {"name": name, "valueFrom" if isinstance(value, dict) else "value": value}
        for name, value in variables.items()
    ]


def _field(path: str) -> Object:
    return {"fieldRef": {"fieldPath": path}}


def _without(found: Mapping[str, Any] | None, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in (found or {}).items() if key not in keys}
