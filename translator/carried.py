"""What offloaded jobs get from their cluster: values of ConfigMaps and Secrets, and storage for volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket or a directory in one, as a URL, and SkyPilot's mount mode for it."""

    source: str
    mode: str = "MOUNT"

    def below(self, path: str) -> Bucket:
        """A directory in it."""
        return Bucket("/".join(part for part in (self.source, path.strip("/")) if part), self.mode)


@dataclass(frozen=True, slots=True)
class SkyVolume:
    """A SkyPilot volume by name, or a directory in it."""

    name: str
    sub_path: str = ""

    def below(self, path: str) -> SkyVolume:
        """A directory in it."""
        return SkyVolume(self.name, "/".join(part for part in (self.sub_path, path.strip("/")) if part))


CloudStorage = Bucket | SkyVolume


@dataclass(frozen=True, slots=True)
class Carried:
    """What a job gets: values of ConfigMaps and Secrets, and `stores`, the storage for volumes by the keys of
    `cloud.volumes`.
    """

    stores: Mapping[str, CloudStorage] = field(default_factory=dict)
