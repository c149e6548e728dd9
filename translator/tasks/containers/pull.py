"""Credentials for private images, in SkyPilot's variables."""

from __future__ import annotations

from translator.field import Field
from translator.manifests.references import SECRET, Lookup
from translator.tasks.containers.registry_logins import logins_for, registry_of


def read_pull_secrets(spec: Field, container: Field, lookup: Lookup) -> dict[str, str]:
    """SKYPILOT_DOCKER_USERNAME, _PASSWORD and _SERVER, from the first of `imagePullSecrets` with a login."""
    image = container.at("image").text() or ""
    registry = registry_of(image)
    found: dict[str, str] = {}
    for reference in spec.at("imagePullSecrets").items():
        data = lookup.data(SECRET, reference, reference.at("name"))
        if data.values is None:
            continue
        logins = logins_for(image, [data.values])
        if logins and not found:
            names = ("SKYPILOT_DOCKER_USERNAME", "SKYPILOT_DOCKER_PASSWORD")
            found = dict(zip(names, logins[0], strict=True))
            found["SKYPILOT_DOCKER_SERVER"] = registry
            lookup.fidelity.kept(reference, "as secrets: SKYPILOT_DOCKER_USERNAME and its like")
        else:
            lookup.fidelity.dropped(reference, f"holds no login of {registry}, or is not needed")
    return found
