"""The lists of a whole cluster that say where volumes are, or can be: one table for Starburst and Chakra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starburst.kube.resources import CSI_NODES, STORAGE_CAPACITIES, STORAGE_CLASSES, VOLUMES, Object, Resource
from starburst.kube.volumes.cache import VolumeCache
from starburst.kube.volumes.views import read_class, read_csi_node, read_storage_capacity, read_volume


@dataclass(frozen=True, slots=True)
class VolumeList:
    """A list that is watched: how its objects are read, and what hears of them (old, new)."""

    resource: Resource
    read: Callable[[Object], Any]
    changed: Callable[[Any, Any], None]


def cluster_lists(cache: VolumeCache) -> tuple[VolumeList, ...]:
    """The lists that feed a cache, besides those of claims, which are by namespace."""
    return (
        VolumeList(VOLUMES, read_volume, cache.volume_changed),
        VolumeList(STORAGE_CLASSES, read_class, cache.class_changed),
        VolumeList(CSI_NODES, read_csi_node, cache.csi_node_changed),
        VolumeList(STORAGE_CAPACITIES, read_storage_capacity, cache.storage_capacity_changed),
    )
