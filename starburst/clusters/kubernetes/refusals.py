"""What a refusal to create a run's object means: never, or not now."""

from __future__ import annotations

import re

from starburst.kube.errors import ApiError

#: 403 that may pass: a full quota, an admission plugin or RBAC that has not synced yet, and a missing right
#: of Starburst to impersonate: messages of admission plugins (resourcequota, lifecycle), and the authorizer.
_PASSES = re.compile(
    r"exceeded quota: |status unknown for quota: |insufficient quota |not yet ready to handle request|RBAC: "
    r"| cannot impersonate resource "
)
_NO_NAMESPACE = re.compile(r'namespaces? "[^"]*" not found')


def is_final(error: ApiError) -> bool:
    """Whether a retry cannot succeed, since the object or the rights are wrong."""
    if error.status == 403:
        return not is_full(error)
    if error.status == 404:  # also what is not served, as while a server starts
        return _NO_NAMESPACE.search(error.message) is not None
    return error.status in (400, 413, 422)


def is_full(error: ApiError) -> bool:
    """Whether the run is right but does not fit now, so that other runs should be tried first."""
    return error.status == 403 and _PASSES.search(error.message) is not None


def words(error: ApiError) -> str:
    """The refusal as a message for its user."""
    return f"the cluster refuses it: {error.message or error.reason}"
