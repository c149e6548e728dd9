"""Whether the submitter of a job may have what its manifest asks for, asked anew when its object is made."""

from __future__ import annotations

import json

from starburst.kube.access import Permission
from starburst.kube.api import Api
from starburst.kube.reviews import may
from starburst.kube.transport import Impersonation
from starburst.runs.ports import Run
from translator.manifests.tenancy import Tenancy, rule


def impersonation_of(run: Run) -> Impersonation | None:
    """The user as whom the object of a run is created; None is our own account."""
    submitter = run.workload.submitter
    if not submitter.kubernetes_user:
        return None
    return Impersonation(submitter.kubernetes_user, submitter.kubernetes_groups)


async def not_entitled(api: Api, tenancy: Tenancy, run: Run, namespace: str) -> str:
    """What a submitted job may not have; "" if it may run. Raises ApiError, UnreachableError."""
    workload = run.workload
    if workload.manifest is None:
        return ""
    ruling = rule(tenancy, json.loads(workload.manifest), run.job.queue, workload.submitter)
    if ruling.errors:
        return "; ".join(error.line for error in ruling.errors)
    for name in ruling.to_ask:
        if not await may(api, Permission("get", "", "secrets", name=name), namespace, impersonation_of(run)):
            return f"Kubernetes user {workload.submitter.kubernetes_user} may not get Secret {name} there"
    return ""
