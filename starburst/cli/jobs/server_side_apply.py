"""Server-side apply of any object, with the plural of its kind from the server's own discovery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes.aio import config as library

from starburst.kube.api import Api
from starburst.kube.errors import ApiError
from starburst.kube.resources import Object, Resource

FIELD_MANAGER = "starburst-submit"
APPLY = "application/apply-patch+yaml"
#: Metadata that only a server may write.
_SERVERS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


def current_namespace() -> str:
    """The namespace of the kubeconfig's current context, as kubectl takes it."""
    try:
        _, active = library.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except library.ConfigException:
        return "default"
    return str(active["context"].get("namespace") or "default")


async def apply(api: Api, obj: Mapping[str, Any], namespace: str) -> None:
    """Create or change an object; `namespace` is for one that names none.

    Raises:
        ApiError, ApiUnreachableError: the server refused it; there was no answer.
    """
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SERVERS}
    body: Object = {**obj, "metadata": metadata}
    body.pop("status", None)
    resource = await _resource(api, obj["apiVersion"], obj["kind"])
    path = resource.path(metadata.get("namespace") or namespace, metadata["name"])
    await api.call("PATCH", path, query={"fieldManager": FIELD_MANAGER}, body=body, content_type=APPLY)


async def _resource(api: Api, api_version: str, kind: str) -> Resource:
    root = "api" if "/" not in api_version else "apis"
    try:
        told = await api.call("GET", f"/{root}/{api_version}")
    except ApiError as error:
        if error.status != 404:
            raise
        told = {}
    for each in told.get("resources") or ():
        if each.get("kind") == kind and "/" not in each["name"]:
            return Resource(api_version, each["name"], namespaced=bool(each.get("namespaced")))
    raise ApiError(404, "NotFound", f"it has no {kind} of {api_version}")
