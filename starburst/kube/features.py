"""Features that depend on the version of the API server."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starburst.kube.api import Api

#: Release that has it switched on: https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/
#: (SuspendJob and IndexedJob: beta and on from 1.22, stable from 1.24).
SUSPEND = (1, 22)
INDEXED = (1, 22)

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")


@dataclass(frozen=True)
class Features:
    """Features of a server. Servers without one drop its fields silently, so it has to be known."""

    #: A Job's `spec.suspend` is obeyed.
    suspend: bool
    #: `completionMode: Indexed`.
    indexed: bool
    #: Major and minor; (0, 0) if the server does not say.
    version: tuple[int, int] = (0, 0)
    #: The version as the server names it.
    name: str = ""


async def detect(api: Api) -> Features:
    """The features of a running server. Raises ApiError, UnreachableError."""
    told = await api.call("GET", "/version")
    # Not the fields major and minor: some builds leave them empty, some providers add signs.
    name = str(told.get("gitVersion") or "")
    number = _VERSION.match(name)
    version = (int(number[1]), int(number[2])) if number else (0, 0)
    return Features(suspend=version >= SUSPEND, indexed=version >= INDEXED, version=version, name=name)
