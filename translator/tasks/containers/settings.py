"""What a manifest asks of its container beside command, environment and volumes: user, rights, image pull."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from translator.field import Field
from translator.tasks.containers.capabilities import DEFAULT_CAPABILITIES, capabilities
from translator.tasks.manifest_parts import split_manifest

ALWAYS, IF_NOT_PRESENT, NEVER = "Always", "IfNotPresent", "Never"


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """User, rights and image pull of a container."""

    #: Numeric ids; None is the image's own.
    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    #: The image may not run it as root.
    non_root: bool = False
    read_only_root: bool = False
    #: Its processes may gain rights that their parents lack, as by sudo.
    may_escalate: bool = False
    capabilities: tuple[str, ...] = DEFAULT_CAPABILITIES
    #: imagePullPolicy; None is Kubernetes' default for the image.
    pull: str | None = None

    def pull_policy(self, image: str) -> str:
        """The pull policy of an image: Always for :latest or no tag, unless the manifest says otherwise."""
        if self.pull is not None:
            return self.pull
        tag = image.rpartition("/")[2].partition(":")[2]
        return ALWAYS if tag in ("", "latest") and "@" not in image else IF_NOT_PRESENT


def settings_of(manifest: Mapping[str, Any]) -> ContainerSettings:
    """The settings of the container of a Job or Pod. Values that Kubernetes would refuse count as absent."""
    parts = split_manifest(manifest)
    pod, own = parts.spec.at("securityContext"), parts.container.at("securityContext")
    user = _first(_number(own.at("runAsUser")), _number(pod.at("runAsUser")))
    non_root = own.at("runAsNonRoot").value
    extra = [group.value for group in _items(pod.at("supplementalGroups"))]
    groups = [*extra, pod.at("fsGroup").value]
    policy = parts.container.at("imagePullPolicy").value
    return ContainerSettings(
        user=user,
        group=_first(_number(own.at("runAsGroup")), _number(pod.at("runAsGroup"))),
        groups=tuple(dict.fromkeys(group for group in groups if isinstance(group, int))),
        non_root=bool(pod.at("runAsNonRoot").value if non_root is None else non_root),
        read_only_root=own.at("readOnlyRootFilesystem").value is True,
        may_escalate=own.at("allowPrivilegeEscalation").value is True,
        capabilities=capabilities(own.at("capabilities")),
        pull=policy if policy in (ALWAYS, IF_NOT_PRESENT, NEVER) else None,
    )


def _items(field: Field) -> list[Field]:
    return field.items() if isinstance(field.value, list) else []


def _number(field: Field) -> int | None:
    value = field.value
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
