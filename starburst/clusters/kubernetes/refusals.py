"""What it means when an API server refuses to make a run's object: never, or not now."""

from __future__ import annotations

import re

from starburst.kube.errors import ApiError

#: 403 that passes: a quota that is full, an admission plugin or RBAC that has not read all yet, and a right
#: to act for somebody that Starburst itself lacks. Words of admission plugins (resourcequota, lifecycle)
#: and of the authorizer.
_PASSES = re.compile(
    r"exceeded quota: |status unknown for quota: |insufficient quota |not yet ready to handle request|RBAC: "
    r"| cannot impersonate resource "
)
_NO_NAMESPACE = re.compile(r'namespaces? "[^"]*" not found')


def is_final(error: ApiError) -> bool:
    """Whether the server would say the same however often it is asked: the object or the rights are wrong."""
    if error.status == 403:
        return not is_full(error)
    if error.status == 404:  # also what is not served, as while a server starts
        return _NO_NAMESPACE.search(error.message) is not None
    return error.status in (400, 413, 422)


def is_full(error: ApiError) -> bool:
    """Whether nothing is wrong with the run, but there is no room for it: others may be better off."""
    return error.status == 403 and _PASSES.search(error.message) is not None


def words(error: ApiError) -> str:
    """The refusal, as its user should read it."""
    return f"the cluster refuses it: {error.message or error.reason}"
