"""Kinds of documents that are no batch/v1 Job or v1 Pod: workloads not taken, and companions of jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from translator.field import Field

API_VERSIONS = {"Job": "batch/v1", "Pod": "v1"}
TAKEN = "Starburst takes batch/v1 Job and v1 Pod"
#: Lists of one kind, as `kubectl get -o yaml` of old and client libraries write them.
LISTS = {"List": "", "JobList": "Job", "PodList": "Pod"}

_GANG = "write its pod template into a batch/v1 Job, with parallelism for the number of pods"
_SERVERS = "Starburst runs jobs that end; apply it with kubectl"
#: Kinds that run pods, by name, and what to do with each; with those that are read if they name another API.
_WORKLOADS = {
    "AppWrapper": "take what it wraps out of it",
    "CronJob": "write apiVersion: batch/v1",
    "JAXJob": _GANG,
    "JobSet": "write apiVersion: jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": _SERVERS,
    "MPIJob": "write apiVersion: kubeflow.org/v2beta1",
    "MXJob": _GANG,
    "PaddleJob": _GANG,
    "PyTorchJob": "write apiVersion: kubeflow.org/v1",
    "RayCluster": "write apiVersion: ray.io/v1",
    "RayJob": "write apiVersion: ray.io/v1",
    "RayService": _SERVERS,
    "SparkApplication": "write a batch/v1 Job that calls spark-submit",
    "TFJob": "write apiVersion: kubeflow.org/v1",
    "TrainJob": "write apiVersion: trainer.kubeflow.org/v1alpha1",
    "Workflow": "write each step as a batch/v1 Job, in order by starburst.io/after-ok",
    "XGBoostJob": "write apiVersion: kubeflow.org/v1",
}
#: Keys by which a document without a kind is known to be a SkyPilot task.
TASK_KEYS = frozenset({"run", "setup", "resources", "num_nodes", "file_mounts", "workdir", "envs"})
_PIPELINE_KEYS = frozenset({"name", "execution"})
_KUSTOMIZE = "is what kustomize reads; submit what it makes: kubectl kustomize DIRECTORY | starburst submit -"
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")


@dataclass(frozen=True, slots=True)
class Companion:
    """A document beside the jobs of a text, such as a ConfigMap: it is not Starburst's to create."""

    kind: str
    name: str
    value: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def has_kind(manifest: Field) -> bool:
    """Whether a manifest is a Job or a Pod; other kinds are refused."""
    if not isinstance(manifest.value, dict):
        manifest.refuse(f"not a manifest; write apiVersion, kind, metadata and spec; {TAKEN}")
        return False
    kind, api_version = manifest.at("kind"), manifest.at("apiVersion")
    if manifest.value.keys() <= _PIPELINE_KEYS and manifest.value:
        manifest.refuse(
            "is the head of a SkyPilot pipeline; submit its tasks one by one, with --after", show=False
        )
    elif kind.value == "Kustomization" or (kind.value is None and _has_bases(manifest.value)):
        manifest.refuse(_KUSTOMIZE, show=False)
    elif kind.value is None:
        kind.refuse(f"is missing; {TAKEN}")
    elif isinstance(kind.value, str) and kind.value in LISTS:
        kind.refuse("a List in a List is not supported; put its items into the outer one")
    elif isinstance(kind.value, str) and _is_workload(kind.value):
        mend = _WORKLOADS.get(kind.value, _GANG)
        if mend.startswith("write apiVersion: "):
            api_version.refuse(f"is not that of {_a(kind.value)}; {mend}")
            return False
        kind.refuse(f"{_a(kind.value)} is not taken yet; {mend}", show=False)
    elif not isinstance(kind.value, str) or kind.value not in API_VERSIONS:
        kind.refuse(f"not a batch job; {TAKEN}")
    elif api_version.value != API_VERSIONS[kind.value]:
        problem = "is missing" if api_version.value is None else "is not supported"
        api_version.refuse(f"{problem}; write {API_VERSIONS[kind.value]} for a {kind.value}")
    else:
        return True
    return False


def _has_bases(value: dict[str, Any]) -> bool:
    """Whether it lists files as a kustomization does, whose kind may be left out."""
    return isinstance(value.get("resources"), list)


def items_of(document: object) -> list[object]:
    """The items of a List, each with its kind, which a JobList need not repeat; else the document."""
    kind = document.get("kind") if isinstance(document, dict) else None
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in LISTS or not isinstance(items, list):
        return [document]
    return [with_kind(item, LISTS[kind]) for item in items]


def with_kind(item: object, kind: str) -> object:
    """An item of a list of one kind, with its kind; "" is a list of any."""
    if not kind or not isinstance(item, dict):
        return item
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, **item}


def companion(manifest: Field) -> Companion | None:
    """The document if it is a whole object of another kind that runs no jobs; None if it is to be judged."""
    value = manifest.value
    if not isinstance(value, dict):
        return None
    kind, api_version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(api_version, str) or not _KIND.fullmatch(kind):
        return None
    if kind in API_VERSIONS or kind in LISTS or _is_workload(kind):
        return None
    name = manifest.at("metadata").at("name").value
    return Companion(kind, name, value) if isinstance(name, str) and name else None


def _is_workload(kind: str) -> bool:
    return kind in _WORKLOADS or (kind.endswith("Job") and kind not in API_VERSIONS)


def _a(kind: str) -> str:
    """With its article: an MPIJob, a JobSet."""
    return f"{'an' if kind[0] in 'AEIOMX' else 'a'} {kind}"
