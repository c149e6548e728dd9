"""Kinds of operators whose objects may be taken into a queue: they lie suspended, so that no pods are made.

Sources: the API references of JobSet v1alpha2, Kubeflow's training operator 1.8, MPI operator v2beta1 and
trainer v1alpha1, KubeRay 1.4, Volcano 1.10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from starburst.kube.access import OPERATOR_KINDS, Permission
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.resources import JOBS, PODS, Object, Resource
from starburst.kube.reviews import may

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """A kind of job that an operator of the cluster runs."""

    name: str
    resource: Resource
    #: Where the spec says that the operator makes no pods.
    suspend: tuple[str, ...] = ("suspend",)
    #: Condition and its reason by which its operator says how it ended; RayJob has other fields.
    succeeded: tuple[str, str] = ("", "")
    failed: tuple[str, str] = ("", "")
    #: Why its objects are not adopted; "" if they are.
    refusal: str = ""

    def is_suspended(self, spec: Mapping[str, Any]) -> bool:
        """Whether its operator makes no pods of an object with this spec."""
        found: Any = spec
        for key in self.suspend:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found is True

    def end(self, status: Mapping[str, Any]) -> str:
        """ "Complete" or "Failed", whoever wrote that; "" while it has not ended."""
        if not self.succeeded[0]:
            deployment = status.get("jobDeploymentStatus")
            failed = deployment == "Failed" or status.get("jobStatus") in ("FAILED", "STOPPED")
            return "" if deployment not in ("Complete", "Failed") else "Failed" if failed else "Complete"
        true = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
        return "Complete" if self.succeeded[0] in true else "Failed" if self.failed[0] in true else ""


def _kubeflow(name: str, plural: str, version: str = "kubeflow.org/v1") -> OperatorKind:
    ends = (("Succeeded", f"{name}Succeeded"), ("Failed", f"{name}Failed"))
    return OperatorKind(name, Resource(version, plural, optional=True), ("runPolicy", "suspend"), *ends)


_SUBMIT = "give it to starburst submit"
KINDS = (
    OperatorKind(
        "JobSet",
        Resource("jobset.x-k8s.io/v1alpha2", "jobsets", optional=True),
        succeeded=("Completed", "AllJobsCompleted"),
        failed=("Failed", "FailedJobs"),
    ),
    _kubeflow("PyTorchJob", "pytorchjobs"),
    _kubeflow("TFJob", "tfjobs"),
    _kubeflow("XGBoostJob", "xgboostjobs"),
    _kubeflow("MPIJob", "mpijobs", "kubeflow.org/v2beta1"),
    OperatorKind(
        "TrainJob",
        Resource("trainer.kubeflow.org/v1alpha1", "trainjobs", optional=True),
        succeeded=("Complete", "AllJobsCompleted"),
        failed=("Failed", "FailedJobs"),
    ),
    OperatorKind("RayJob", Resource("ray.io/v1", "rayjobs", optional=True)),
    OperatorKind(
        "RayCluster",
        Resource("ray.io/v1", "rayclusters", optional=True),
        refusal=f"a RayCluster never ends, so nothing could be written on it; {_SUBMIT}, or apply a RayJob",
    ),
    OperatorKind(
        "Job",
        Resource("batch.volcano.sh/v1alpha1", "jobs", optional=True),
        refusal=f"a Volcano Job cannot be suspended, so Volcano runs it at once; {_SUBMIT}",
    ),
)
_VERSIONS = {each.resource.api_version for each in KINDS}
_RESOURCES = {"Job": JOBS, "Pod": PODS, **{each.name: each.resource for each in KINDS if not each.refusal}}


def resource_named(kind: str) -> Resource:
    """Of the kind of an adopted object."""
    return _RESOURCES[kind]


async def _may_read(api: Api, kind: OperatorKind, namespace: str) -> bool:
    return all([await may(api, one, namespace) for one in _reading(kind)])


async def kinds_served(api: Api, namespace: str) -> list[OperatorKind]:
    """The kinds that the server has and whose objects the account may list there, in all namespaces for "".

    None, if that cannot be found out now: nothing is concluded from a kind that is missing.
    """
    try:
        groups = (await api.call("GET", "/apis")).get("groups") or []
        versions = {each["groupVersion"] for group in groups for each in group["versions"]}
        plurals = {each: await _plurals(api, each) for each in _VERSIONS & versions}
        served = [each for each in KINDS if _is_among(each.resource, plurals)]
        return [each for each in served if await _may_read(api, each, namespace)]
    except (ApiError, ApiUnreachableError) as error:
        log.warning("kinds-unknown", error=str(error))
        return []


def _is_among(resource: Resource, plurals: Mapping[str, Collection[str]]) -> bool:
    return resource.plural in plurals.get(resource.api_version, ())


async def _plurals(api: Api, version: str) -> set[str]:
    served: list[Object] = (await api.call("GET", f"/apis/{version}")).get("resources") or []
    return {each["name"] for each in served}


def _reading(kind: OperatorKind) -> list[Permission]:
    group = kind.resource.api_version.partition("/")[0]
    mine = [each for each in OPERATOR_KINDS if (each.group, each.resource) == (group, kind.resource.plural)]
    return [each for each in mine if each.verb in ("list", "watch")]
