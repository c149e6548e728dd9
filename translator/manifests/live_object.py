"""Reads live objects of a cluster as jobs, without the fields that the API server has added.

They are Jobs and Pods, and objects of operators, which become the Jobs that `starburst submit` makes of them.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from starburst.domain.job import Adopted, Job, Submission
from starburst.domain.user import USER_IS, is_user
from translator.errors import ManifestError, ManifestErrors
from translator.field import Field, ManifestReport
from translator.intake.kinds import API_VERSIONS, has_kind
from translator.intake.rules import IntakeRules
from translator.kinds.operators.registry import read_operator_kind
from translator.manifests.hints import OWN_KEYS, PREFIX
from translator.manifests.manifest import MANAGED_BY_US, submission

#: Fields of metadata that users set; the API server sets all others.
_USERS = ("name", "namespace", "labels", "annotations")
_SERVERS_KEYS = frozenset(
    {
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
        "batch.kubernetes.io/job-tracking",
        "controller-uid",
        "job-name",
        "kubectl.kubernetes.io/last-applied-configuration",
        *(PREFIX + key for key in OWN_KEYS if key != "user"),
    }
)
_DEADLINE = f"{PREFIX}active-deadline"
_TTL = f"{PREFIX}ttl"
_SECONDS = re.compile(r"[0-9]{1,18}")
#: Volumes with the credentials of the pod's service account, which the API server adds: projected volumes, or
#: before 1.21 the account's Secret, under its own name.
_INJECTED_VOLUME = re.compile(r"kube-api-access-[a-z0-9]+")
_INJECTED_SECRET = re.compile(r".+-token-[a-z0-9]{5}")
_CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount"
NATIVE = IntakeRules(native=True)
_INJECTED_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def read_object(
    obj: Mapping[str, Any], *, job_id: str, user: str | None = None, rules: IntakeRules = NATIVE
) -> Submission:
    """An object, as returned by the API server, as a job with the id `job_id`.

    `user` is the job's user; None takes it from the label or annotation starburst.io/user.

    Raises:
        ManifestErrors: the object is invalid or not supported; contains all problems.
    """
    metadata = _mapping(obj, "metadata")
    kind = "Job" if "template" in _mapping(obj, "spec") else "Pod"
    obj = {"apiVersion": API_VERSIONS[kind], "kind": kind, **obj}  # items of a list lack both
    adopted = Adopted(
        kind=str(obj["kind"]),
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata.get("name")),
        uid=str(metadata.get("uid") or ""),
    )
    source = " ".join(f"{adopted.kind} {adopted.namespace}/{adopted.name}".split())
    report = rules.report(source, document=0)
    report.accepted = True
    document = Field(as_submitted(obj), "", report)
    read_as = read_operator_kind(document)
    if report.errors:
        raise ManifestErrors(report.errors)
    manifest = document if read_as is None else replace(document, value=read_as.manifest)
    owner = _controller(metadata) if adopted.kind == "Pod" else ""
    if owner:
        manifest.at("metadata").refuse(f"is a pod of {owner}; let that be adopted", show=False)
    whose = _user(metadata, manifest) if user is None else user
    found = submission(_by_turns(manifest), lambda: "", whose) if has_kind(manifest) else None
    if read_as is not None and found is not None:
        read_as.in_its_words(report)
        return _of_operator(replace(found, job=read_as.with_tasks(found.job)), job_id, adopted, report)
    if found is not None and found.job.array is not None:
        manifest.at("spec").refuse(
            "an object that lies in a cluster cannot be split into an array; give it to starburst submit",
            show=False,
        )
    if found is not None and (found.job.comes_after or found.singleton):
        manifest.at("metadata").refuse(
            "starburst.io/after-ok and its like name jobs of Starburst; give it to starburst submit",
            show=False,
        )
    if found is None or manifest.report.errors:
        raise ManifestErrors(manifest.report.errors)
    asked = manifest.at("metadata").at("annotations").at(f"{PREFIX}retries")
    if asked.value is not None and found.job.retries:
        asked.note(
            "an object that has failed cannot run again; its own backoffLimit is kept, submit it for more"
        )
    return replace(
        found,
        job=replace(found.job, id=job_id, retries=0, least_tasks=_least_tasks(found.job, manifest)),
        workload=replace(found.workload, adopted=adopted, manifest=_whole(found.workload.manifest, manifest)),
        notes=tuple(manifest.report.notes),
    )


def _least_tasks(job: Job, manifest: Field) -> int:
    """With how many tasks it goes on; all, if its runs are those of its own object."""
    if not job.least_tasks or manifest.at("spec").at("managedBy").value == MANAGED_BY_US:
        return job.least_tasks
    manifest.at("metadata").at("annotations").at(f"{PREFIX}elastic").note(
        "an object that lies in a cluster keeps its completions; give it to starburst submit"
    )
    return 0


def _of_operator(found: Submission, job_id: str, adopted: Adopted, report: ManifestReport) -> Submission:
    """The job of an operator's object, whose runs are Starburst's own: it may be repeated."""
    if found.job.comes_after or found.singleton or found.job.array is not None:
        problem = "arrays and starburst.io/after-ok are for what is given to starburst submit"
        report.errors.append(ManifestError(report.source, 0, "metadata", None, problem))
    if report.errors:
        raise ManifestErrors(report.errors)
    job, workload = replace(found.job, id=job_id), replace(found.workload, adopted=adopted)
    return replace(found, job=job, workload=workload, notes=tuple(report.notes))


def _by_turns(manifest: Field) -> Field:
    """A Job with more completions than parallelism, read as one: its own controller counts the indexes.

    `starburst submit` makes an array of such an Indexed Job, with a Job for each member.
    """
    value = manifest.value if isinstance(manifest.value, dict) else {}
    spec = _mapping(value, "spec")
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 1)
    counts = isinstance(completions, int) and isinstance(parallelism, int) and completions > parallelism
    if spec.get("completionMode") != "Indexed" or not counts:
        return manifest
    counted = {key: found for key, found in spec.items() if key != "completionMode"}
    return replace(manifest, value={**value, "spec": counted})


def _whole(text: str | None, manifest: Field) -> str | None:
    """The text of a manifest with the completion mode that it was read without."""
    mode = manifest.at("spec").at("completionMode").value
    if text is None or mode is None:
        return text
    known = json.loads(text)
    known["spec"]["completionMode"] = mode
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


def as_submitted(obj: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an object without the fields that the API server and Starburst have added."""
    manifest = copy.deepcopy({key: value for key, value in obj.items() if key != "status"})
    metadata = _mapping(manifest, "metadata")
    deadline = str(_mapping(metadata, "annotations").get(_DEADLINE, ""))
    ttl = str(_mapping(metadata, "annotations").get(_TTL, ""))
    manifest["metadata"] = _keys_of_users({key: metadata[key] for key in _USERS if key in metadata})
    spec = _mapping(manifest, "spec")
    if manifest.get("kind") == "Job":
        _clean_job(spec)
        if _SECONDS.fullmatch(deadline):  # removed while the job waits
            spec.setdefault("activeDeadlineSeconds", int(deadline))
        if _SECONDS.fullmatch(ttl):  # removed until the job's end is stored
            spec["ttlSecondsAfterFinished"] = int(ttl)
    elif manifest.get("kind") == "Pod":
        _clean_pod(spec)
    else:  # an operator's: it lies suspended, so that Starburst runs it
        for owner in (spec, _mapping(spec, "runPolicy")):
            owner.pop("suspend", None)
    return manifest


def _clean_job(spec: dict[str, Any]) -> None:
    """Remove the API server's selector, the suspension of a waiting Job, and the server's keys."""
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
    spec.pop("suspend", None)
    template = _mapping(spec, "template")
    _mapping(template, "spec").pop("schedulingGates", None)  # its job is held until its pods have none
    if "metadata" in template:
        metadata = _keys_of_users(dict(_mapping(template, "metadata")))
        metadata.pop("creationTimestamp", None)
        template["metadata"] = metadata


def _clean_pod(spec: dict[str, Any]) -> None:
    """Remove the node name, debug containers, scheduling gates, and the priority, tolerations and credentials
    that admission adds to every pod.
    """
    for key in ("nodeName", "ephemeralContainers", "priority", "schedulingGates"):
        spec.pop(key, None)
    _drop(spec, "tolerations", _is_injected)
    containers = (*_mappings(spec, "containers"), *_mappings(spec, "initContainers"))
    mounts = [mount for container in containers for mount in _mappings(container, "volumeMounts")]
    users = {str(mount.get("name")) for mount in mounts if mount.get("mountPath") != _CREDENTIALS}
    volumes = {str(each.get("name")) for each in _mappings(spec, "volumes") if _is_credentials(each)}
    gone = volumes - users  # a Secret such as hf-token-write may be the user's own
    _drop(spec, "volumes", lambda volume: str(volume.get("name")) in gone)
    for container in containers:
        _drop(container, "volumeMounts", lambda mount: str(mount.get("name")) in gone)


def _is_credentials(volume: dict[str, Any]) -> bool:
    name = str(volume.get("name"))
    if _INJECTED_SECRET.fullmatch(name) and _mapping(volume, "secret").get("secretName") == name:
        return True
    return _INJECTED_VOLUME.fullmatch(name) is not None


def _is_injected(toleration: dict[str, Any]) -> bool:
    return (
        toleration.get("key") in _INJECTED_TOLERATIONS
        and toleration.get("effect") == "NoExecute"
        and "tolerationSeconds" in toleration
    )


def _drop(owner: dict[str, Any], key: str, unwanted: Callable[[dict[str, Any]], bool]) -> None:
    """Remove unwanted elements from a list, and the list if it becomes empty."""
    found = owner.get(key)
    if isinstance(found, list):
        owner[key] = [one for one in found if not (isinstance(one, dict) and unwanted(one))]
        if not owner[key]:
            del owner[key]


def _keys_of_users(metadata: dict[str, Any]) -> dict[str, Any]:
    for kind in ("labels", "annotations"):
        kept = {key: value for key, value in _mapping(metadata, kind).items() if key not in _SERVERS_KEYS}
        metadata.pop(kind, None)
        if kept:
            metadata[kind] = kept
    return metadata


def _user(metadata: dict[str, Any], manifest: Field) -> str:
    key = f"{PREFIX}user"
    for kind in ("annotations", "labels"):
        name = str(_mapping(metadata, kind).get(key) or "")
        if name and not is_user(name):
            manifest.at("metadata").at(kind).at(key).refuse(USER_IS)
        if name:
            return name
    return ""


def _controller(metadata: dict[str, Any]) -> str:
    """The controller that owns this object, as "Job train"; "" if there is none."""
    for owner in _mappings(metadata, "ownerReferences"):
        if owner.get("controller"):
            return f"{owner.get('kind')} {owner.get('name')}"
    return ""


def _mappings(owner: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The mappings in the list under a key."""
    found = owner.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _mapping(owner: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The mapping under a key; an empty one if there is none."""
    found = owner.get(key)
    return found if isinstance(found, dict) else {}
