"""Logins for the registry of an image, out of the Secrets that `imagePullSecrets` names.

The Secrets are of the types kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg. An entry is for an
image as a kubelet has it: a host whose parts may have wildcards, and perhaps the beginning of a path; the
most exact entries come first (https://kubernetes.io/docs/concepts/containers/images/#config-json).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

_CONFIG_JSON, _CONFIG = ".dockerconfigjson", ".dockercfg"
HUB = "docker.io"
#: Names under which logins of Docker Hub are kept.
_HUBS = {"index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"}
_FRAME = re.compile(r"^(?:https?://)?(.*?)(?:/v[12])?/*$")


def registry_of(image: str) -> str:
    """The registry of an image: its first component if that is a host name, else Docker Hub."""
    host, slash, _ = image.partition("/")
    return host if slash and (set(host) & {".", ":"} or host == "localhost") else HUB


def logins_for(image: str, secrets: Iterable[Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
    """User and password of every login that is for an image, in the order of trial; each once."""
    found = []
    for data in secrets:
        for name, entry in _entries(data).items():
            place = _FRAME.sub(r"\1", name)
            login = _login(entry)
            if login is not None and _is_for(place, image):
                found.append((place, login))
    found.sort(key=lambda pair: len(pair[0]), reverse=True)  # stable: of equal ones, the first Secret's
    return tuple(dict.fromkeys(login for _, login in found))


def _entries(data: Mapping[str, str]) -> dict[str, Any]:
    """The entries of a Secret by place; none if it holds no docker config."""
    try:
        config: Any = json.loads(data.get(_CONFIG_JSON) or data.get(_CONFIG) or "{}")
    except (ValueError, RecursionError):
        return {}
    entries = config.get("auths") if _CONFIG_JSON in data and isinstance(config, dict) else config
    return entries if isinstance(entries, dict) else {}


def _login(entry: Any) -> tuple[str, str] | None:
    if not isinstance(entry, dict):
        return None
    user, password = entry.get("username"), entry.get("password")
    if isinstance(user, str) and isinstance(password, str):
        return user, password
    try:
        user, colon, password = base64.b64decode(str(entry.get("auth", ""))).decode().partition(":")
    except (ValueError, binascii.Error):
        return None
    return (user, password) if colon else None


def _is_for(place: str, image: str) -> bool:
    """Whether an entry of this place is for an image."""
    host, _, path = place.partition("/")
    registry = registry_of(image)
    below = image.removeprefix(f"{registry}/")
    host = HUB if host in _HUBS else host
    wanted, given = host.split("."), registry.split(".")
    same = len(wanted) == len(given) and all(map(fnmatchcase, given, wanted))
    return same and (not path or below == path or below.startswith((f"{path}/", f"{path}:", f"{path}@")))
