"""Kinds of objects as the API addresses them, what is used of each, and times as it writes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

#: An object as JSON: the library's models are not used, for they drop fields that they do not know.
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: API version ("batch/v1"), plural, and whether its objects are in namespaces.

    `optional`: there are servers that do not serve it.
    """

    api_version: str
    plural: str
    namespaced: bool = True
    optional: bool = False

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """The URL path of one object, of a namespace's objects or, without a namespace, of all objects."""
        root = "api" if "/" not in self.api_version else "apis"
        parts = [root, self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [self.plural, *(quote(part, safe="") for part in (name, sub) if part)]
        return "/" + "/".join(parts)


NODES = Resource("v1", "nodes", namespaced=False)
NAMESPACES = Resource("v1", "namespaces", namespaced=False)
PODS = Resource("v1", "pods")
EVENTS = Resource("v1", "events")
CONFIG_MAPS = Resource("v1", "configmaps")
SECRETS = Resource("v1", "secrets")
JOBS = Resource("batch/v1", "jobs")
CLAIMS = Resource("v1", "persistentvolumeclaims")
VOLUMES = Resource("v1", "persistentvolumes", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io/v1", "storageclasses", namespaced=False)
CSI_NODES = Resource("storage.k8s.io/v1", "csinodes", namespaced=False)
#: Served from 1.24 on.
STORAGE_CAPACITIES = Resource("storage.k8s.io/v1", "csistoragecapacities", optional=True)
LEASES = Resource("coordination.k8s.io/v1", "leases")


def timestamp(text: str | None) -> float | None:
    """Epoch seconds of a time as the API writes it: whole seconds, or any fraction of them."""
    if not text:
        return None
    whole, point, fraction = text.removesuffix("Z").partition(".")
    seconds = datetime.fromisoformat(whole + ("+00:00" if text.endswith("Z") else "")).timestamp()
    return seconds + float(f"0.{fraction}") if point else seconds
