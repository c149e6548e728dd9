"""CustomResourceDefinitions of operators in a small form of ours, and what their operators do.

The fields that matter are those of the published APIs: JobSet v1alpha2, training operator 1.8, KubeRay 1.4.
Servers prune and check by them as they do with the true ones.
"""

from __future__ import annotations

from typing import Any

from starburst.kube.api import Api
from starburst.kube.operator_kinds import KINDS, OperatorKind
from starburst.kube.resources import PODS, Object, Resource

CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
JOBSET, PYTORCH, RAY_JOB = (
    next(each for each in KINDS if each.name == name) for name in ("JobSet", "PyTorchJob", "RayJob")
)
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT, TIME, FLAG, NUMBER = (
    {"type": "string"},
    {"type": "string", "format": "date-time"},
    {"type": "boolean"},
    {"type": "integer"},
)


def _object(*required: str, **properties: Any) -> Object:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _conditions(*required: str, **times: Any) -> Object:
    status = {"type": "string", "enum": ["True", "False", "Unknown"]}
    one = _object(*required, type=TEXT, status=status, reason=TEXT, message=TEXT, **times)
    return {"type": "array", "items": one}


#: Schemas of spec and status, by kind.
_SCHEMAS: dict[str, tuple[Object, Object]] = {
    "JobSet": (
        _object(
            suspend=FLAG,
            successPolicy=_object("operator", operator=TEXT),
            failurePolicy=_object(maxRestarts=NUMBER),
            replicatedJobs={
                "type": "array",
                "items": _object(
                    "name", "template", name=TEXT, replicas={**NUMBER, "default": 1}, template=ANY
                ),
            },
        ),
        _object(
            terminalState=TEXT,
            conditions=_conditions(
                *("lastTransitionTime", "message", "reason", "status", "type"), lastTransitionTime=TIME
            ),
        ),
    ),
    "PyTorchJob": (
        _object(
            "pytorchReplicaSpecs",
            nprocPerNode=TEXT,
            runPolicy=_object(suspend=FLAG, backoffLimit=NUMBER, cleanPodPolicy=TEXT),
            pytorchReplicaSpecs={
                "type": "object",
                "additionalProperties": _object(replicas=NUMBER, restartPolicy=TEXT, template=ANY),
            },
        ),
        _object(
            *("conditions", "replicaStatuses"),
            completionTime=TIME,
            conditions=_conditions("status", "type", lastTransitionTime=TIME, lastUpdateTime=TIME),
            replicaStatuses={"type": "object", "additionalProperties": _object(succeeded=NUMBER)},
        ),
    ),
    "RayJob": (
        _object(
            suspend=FLAG,
            entrypoint=TEXT,
            shutdownAfterJobFinishes=FLAG,
            submissionMode={**TEXT, "default": "K8sJobMode"},
            rayClusterSpec=_object(
                "headGroupSpec", headGroupSpec=ANY, workerGroupSpecs={"type": "array", "items": ANY}
            ),
        ),
        _object(jobStatus=TEXT, jobDeploymentStatus=TEXT, message=TEXT, reason=TEXT, endTime=TIME),
    ),
}


def crd(kind: OperatorKind) -> Object:
    """Of one kind."""
    spec, status = _SCHEMAS[kind.name]
    group, _, version = kind.resource.api_version.partition("/")
    whole = _object(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=spec, status=status)
    served: Object = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": whole},
        "subresources": {"status": {}},
    }
    names = {"kind": kind.name, "plural": kind.resource.plural, "singular": kind.name.lower()}
    return {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.resource.plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


async def operate(api: Api) -> None:
    """A round of each operator: the suspended says so, what has ended is left alone, others get a pod."""
    for kind in (JOBSET, PYTORCH, RAY_JOB):
        for item in await api.list(kind.resource, "default"):
            status = item.get("status") or {}
            if kind.end(status):
                continue
            if kind.is_suspended(item["spec"]):
                await _say_suspended(api, kind, item)
            else:
                pod = {"name": f"{item['metadata']['name']}-of-its-operator"}
                spec = {"containers": [{"name": "main", "image": "none"}]}
                await api.create(PODS, "default", {"metadata": pod, "spec": spec})


async def _say_suspended(api: Api, kind: OperatorKind, item: Object) -> None:
    words = {
        "reason": "Suspended",
        "message": "it is suspended",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status: Object = {"conditions": [{"type": "Suspended", "status": "True", **words}]}
    if kind is PYTORCH:
        status["replicaStatuses"] = {"Master": {}}
    if kind is RAY_JOB:
        status = {"jobDeploymentStatus": "Suspended"}
    await api.patch(kind.resource, "default", item["metadata"]["name"], {"status": status}, sub="status")
