"""Access reviews: what an account may do in a cluster, as its API server answers."""

from __future__ import annotations

from starburst.kube.access import Permission
from starburst.kube.api import Api
from starburst.kube.errors import ApiUnreachableError
from starburst.kube.resources import Object, Resource
from starburst.kube.transport import Impersonation

_GROUP = "authorization.k8s.io/v1"
OWN_REVIEWS = Resource(_GROUP, "selfsubjectaccessreviews", namespaced=False)
REVIEWS = Resource(_GROUP, "subjectaccessreviews", namespaced=False)
_ACCOUNTS = "system:serviceaccounts"


async def may(
    api: Api, asked: Permission, namespace: str = "", impersonation: Impersonation | None = None
) -> bool:
    """Whether our account, or the impersonated one, has a permission; without a namespace: in all of them.

    Raises:
        ApiError: the review is refused.
        UnreachableError: no answer.
    """
    body = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": _attributes(asked, namespace)}}
    return await _allowed(api, OWN_REVIEWS, body, impersonation)


async def account_may(api: Api, asked: Permission, namespace: str, account: str) -> bool:
    """Whether a service account has a permission in its namespace. Raises as `may`."""
    spec = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": [_ACCOUNTS, f"{_ACCOUNTS}:{namespace}", "system:authenticated"],
        "resourceAttributes": _attributes(asked, namespace),
    }
    return await _allowed(api, REVIEWS, {"kind": "SubjectAccessReview", "spec": spec}, None)


def _attributes(asked: Permission, namespace: str) -> Object:
    found = {
        "verb": asked.verb,
        "group": asked.group,
        "resource": asked.resource,
        "subresource": asked.subresource,
        "name": asked.name,
        "namespace": namespace,
    }
    return {key: value for key, value in found.items() if value}


async def _allowed(api: Api, resource: Resource, body: Object, impersonation: Impersonation | None) -> bool:
    body = {"apiVersion": resource.api_version, **body}
    answer = await api.call("POST", resource.path(), body=body, impersonation=impersonation)
    status = answer.get("status")
    if not isinstance(status, dict):
        raise ApiUnreachableError(f"POST {resource.path()}: the answer is no review")
    return status.get("allowed") is True and status.get("denied") is not True
