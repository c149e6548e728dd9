"""Credentials for private images, in SkyPilot's variables."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from translator.field import Field
from translator.manifests.references import SECRET, Lookup

_KEY = ".dockerconfigjson"
_HUB = "https://index.docker.io/v1/"


def read_pull_secrets(spec: Field, container: Field, lookup: Lookup) -> dict[str, str]:
    """SKYPILOT_DOCKER_USERNAME, _PASSWORD and _SERVER, from the first of `imagePullSecrets` with a login."""
    registry = _registry(container.at("image").text() or "")
    found: dict[str, str] = {}
    for reference in spec.at("imagePullSecrets").items():
        data = lookup.data(SECRET, reference, reference.at("name"))
        if data.values is None:
            continue
        login = _login(data.values.get(_KEY, ""), registry)
        if login and not found:
            found = dict(zip(("SKYPILOT_DOCKER_USERNAME", "SKYPILOT_DOCKER_PASSWORD"), login, strict=True))
            found["SKYPILOT_DOCKER_SERVER"] = registry
            lookup.fidelity.kept(reference, "as secrets: SKYPILOT_DOCKER_USERNAME and its like")
        else:
            lookup.fidelity.dropped(reference, f"holds no login of {registry}, or is not needed")
    return found


def _registry(image: str) -> str:
    """The registry of an image: its first component if that is a host name, else Docker Hub."""
    host, slash, _ = image.partition("/")
    return host if slash and (set(host) & {".", ":"} or host == "localhost") else "docker.io"


def _login(text: str, registry: str) -> tuple[str, str] | None:
    """User and password for a registry in a docker config; None if it has none."""
    try:
        config: Any = json.loads(text or "{}")
        auths = config.get("auths", {})
        names = (registry, f"https://{registry}", *((_HUB,) if registry == "docker.io" else ()))
        login: Any = next((auths[name] for name in names if name in auths), {})
        if "username" in login and "password" in login:
            return str(login["username"]), str(login["password"])
        user, colon, password = base64.b64decode(login.get("auth", "")).decode().partition(":")
    except (
        ValueError,
        AttributeError,
        TypeError,
        binascii.Error,
    ):  # not a docker config
        return None
    return (user, password) if colon else None
