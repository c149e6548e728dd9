"""Asks a Kubernetes API server, by a dry run, whether it would take the objects of jobs that are submitted.

Without it, what the server refuses is known only when a job is placed, which may be hours later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starburst.aio import answer_within
from starburst.clusters.kubernetes.manifest import job_object, namespace_of
from starburst.clusters.kubernetes.refusals import is_final
from starburst.clusters.kubernetes.submitter_rights import impersonation_of
from starburst.core.model.actions import Slot
from starburst.domain.job import Submission
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError, KubeCredentialsError
from starburst.kube.features import Features, detect
from starburst.kube.resources import JOBS, PODS, Object, Resource
from starburst.kube.transport import Impersonation
from starburst.runs.ports import Run
from translator.manifests.tenancy import Tenancy

#: Wall seconds for all jobs of a submission.
LIMIT_S = 10.0
#: Refusals of the dry run itself: by a webhook with side effects, as our account may not create pods, or in a
#: namespace so new that its own account is not there yet.
_OF_DRY_RUNS = re.compile(
    r'does not support dry run|cannot create resource "pods"|serviceaccount "default" not found'
)
_TEMPLATE = "spec.template."


@dataclass(frozen=True, slots=True)
class DryRunAnswer:
    """What the server would refuse."""

    #: One line per cause, of each submission.
    refusals: tuple[tuple[str, ...], ...]
    #: Why not all submissions were asked about; "" if they were.
    unasked: str = ""


async def server_dry_run(
    connect: Callable[[], Awaitable[Api]],
    tenancy: Tenancy,
    submissions: Sequence[Submission],
    limit_s: float = LIMIT_S,
) -> DryRunAnswer:
    """The answer for submissions with manifests; a server that does not answer in time refuses nothing."""
    refusals: list[tuple[str, ...]] = [()] * len(submissions)
    unasked = ""
    try:
        with answer_within(limit_s):
            async with await connect() as api:
                features = await detect(api)
                for number, submission in enumerate(submissions):
                    refusals[number] = await _refusals(api, features, tenancy, submission)
    except (ApiError, ApiUnreachableError, KubeCredentialsError, TimeoutError) as error:
        unasked = " ".join(str(error).split())
    return DryRunAnswer(tuple(refusals), unasked)


async def _refusals(
    api: Api, features: Features, tenancy: Tenancy, submission: Submission
) -> tuple[str, ...]:
    """Ask for the Job, in its submitter's name, and then for a pod of it, as the Job controller would."""
    job, workload = submission.job, submission.workload
    run = Run(job, 1, tuple(Slot(rank, "", task) for rank, task in enumerate(job.tasks)), workload)
    namespace = namespace_of(workload, tenancy.namespace)
    body = job_object(
        run,
        namespace=namespace,
        controller="",
        decision="",
        indexed=features.indexed,
        checkpoints=tenancy.checkpoints,
    )
    template = body["spec"]["template"]
    pod = {**template, "metadata": {**template["metadata"], "generateName": "dry-run-"}}
    is_pod = json.loads(workload.manifest or "{}").get("kind") == "Pod"
    found = await _refusal(api, JOBS, namespace, body, impersonation_of(run))
    prefix = "" if is_pod else _TEMPLATE
    if found:
        return tuple(line.replace(_TEMPLATE, prefix) for line in found)
    found = await _refusal(api, PODS, namespace, {"apiVersion": "v1", "kind": "Pod", **pod}, None)
    return tuple(f"{prefix}{line}" if line.startswith("spec.") else line for line in found)


async def _refusal(
    api: Api, resource: Resource, namespace: str, body: Object, impersonation: Impersonation | None
) -> tuple[str, ...]:
    try:
        await api.create(resource, namespace, body, impersonation=impersonation, dry_run=True)
    except ApiError as error:
        if not is_final(error) or _OF_DRY_RUNS.search(error.message):
            return ()
        return error.causes or (" ".join(f"the cluster refuses it: {error.message or error.reason}".split()),)
    return ()
