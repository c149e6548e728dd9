"""Claims, volumes and storage classes as the API has them, in a few words."""

from __future__ import annotations

from typing import Any

from starburst.kube.resources import Object
from starburst.kube.volumes.cache import VolumeCache
from starburst.kube.volumes.views import (
    SELECTED_NODE,
    read_claim,
    read_class,
    read_csi_node,
    read_storage_capacity,
    read_volume,
)
from tests.chakra.builders import node

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def claim(name: str = "data", storage_class: str = "late", *, gib: int = 1, **more: Any) -> Object:
    """A claim; `volume` is what it is bound to, `selected` its selected node."""
    volume, selected = more.pop("volume", ""), more.pop("selected", "")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{name}",
            "annotations": {SELECTED_NODE: selected} if selected else {},
            **more.pop("metadata", {}),
        },
        "spec": {
            "storageClassName": storage_class,
            "accessModes": more.pop("modes", ["ReadWriteOnce"]),
            "resources": {"requests": {"storage": f"{gib}Gi"}},
            **({"volumeName": volume} if volume else {}),
            **more,
        },
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(
    name: str = "pv", on: str = "", storage_class: str = "late", *, gib: int = 1, **more: Any
) -> Object:
    """A volume, local to the node `on`; `labels` and `claim` as the API has them."""
    terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [on]}]}]
    kept = more.pop("claim", None)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": more.pop("labels", {})},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": more.pop("modes", ["ReadWriteOnce"]),
            "capacity": {"storage": f"{gib}Gi"},
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if on else {}),
            **({"claimRef": {"namespace": "ns", "name": kept, "uid": f"uid-{kept}"}} if kept else {}),
            **more,
        },
        "status": {"phase": "Bound" if kept else "Available"},
    }


def storage_class(
    name: str = "late", provisioner: str = "kubernetes.io/no-provisioner", **more: Any
) -> Object:
    """A class; by default of volumes that are made by hand and bound with the node."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        **more,
    }


def csi_node(name: str, **limits: int | None) -> Object:
    """How many volumes of each driver a node takes; None is a driver that does not say."""
    drivers = [
        {"name": driver, "nodeID": name, **({} if count is None else {"allocatable": {"count": count}})}
        for driver, count in limits.items()
    ]
    return {"kind": "CSINode", "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"drivers": drivers}}


def storage_capacity(gib: int, node: str = "", *, largest: int = 0, storage_class: str = "late") -> Object:
    """What is left for volumes of a class, on one node or on all; `largest`: GiB of one volume."""
    labels = {"matchLabels": {HOSTNAME: node}} if node else {}
    return {
        "kind": "CSIStorageCapacity",
        "metadata": {"namespace": "storage", "name": f"room-{node}", "uid": f"uid-room-{node}"},
        "storageClassName": storage_class,
        "nodeTopology": labels,
        "capacity": f"{gib}Gi",
        **({"maximumVolumeSize": f"{largest}Gi"} if largest else {}),
    }


def tell(cache: VolumeCache, *items: Object) -> None:
    """Objects are new or changed."""
    for item in items:
        if item.get("kind") == "PersistentVolumeClaim":
            view = read_claim(item)
            cache.claim_changed(cache.claims.get(view.key), view)
        elif item.get("kind") == "PersistentVolume":
            cache.volume_changed(cache.volume(item["metadata"]["name"]), read_volume(item))
        elif item.get("kind") == "CSINode":
            cache.csi_node_changed(None, read_csi_node(item))
        elif item.get("kind") == "CSIStorageCapacity":
            cache.storage_capacity_changed(None, read_storage_capacity(item))
        else:
            cache.class_changed(None, read_class(item))


def cache_of(*items: Object, nodes: int = 3) -> VolumeCache:
    """What a scheduler knows that has nodes n0, n1, … in zones a, b, …"""
    cache = VolumeCache()
    for number in range(nodes):
        name = f"n{number}"
        cache.node_changed(None, node(name, labels={HOSTNAME: name, ZONE: "abc"[number]}))
    tell(cache, *items)
    return cache
