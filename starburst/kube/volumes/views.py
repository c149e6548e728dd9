"""Claims, volumes and storage classes read into small values, and the claims that a pod spec names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starburst.domain.constraints import Requirement, Term
from starburst.kube.resources import Object
from translator.podspec import node_terms
from translator.quantity import quantity

#: The value of `provisioner` of classes whose volumes are made by hand.
NO_PROVISIONER = "kubernetes.io/no-provisioner"
#: The annotation of a claim that tells its provisioner for which node to make the volume.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
#: Labels of a volume that restrict it to zones or regions, the names of before 1.17 included.
ZONE_LABELS = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
)
ONE_POD = "ReadWriteOncePod"

#: A term that no node matches.
NOWHERE: tuple[Term, ...] = ((),)
#: Namespace and name.
ClaimKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim as a pod names it."""

    name: str
    #: Made for this pod alone, from a template in its spec (generic ephemeral volume).
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class StorageNeed:
    """What a claim asks of a volume."""

    #: Name of the class; "" is none.
    storage_class: str
    modes: frozenset[str]
    volume_mode: str
    size_bytes: int
    #: Requirements on the labels of the volume.
    selector: Term


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    uid: str
    need: StorageNeed
    #: Name of its volume, also while that is not bound; "" is none.
    volume: str
    #: "Pending", "Bound" or "Lost".
    phase: str
    #: The node that its volume is to be made for; "" is none.
    selected_node: str
    #: uid of the pod that it was made for; "" is none.
    owner: str
    deleting: bool

    @property
    def key(self) -> ClaimKey:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def bound(self) -> bool:
        """Whether it has its volume."""
        return self.phase == "Bound" and bool(self.volume)


@dataclass(frozen=True, slots=True)
class VolumeView:
    """A PersistentVolume."""

    name: str
    need: StorageNeed
    labels: tuple[tuple[str, str], ...]
    phase: str
    #: The claim that it is bound to or kept for; None if it is free. A kept one may have no uid.
    claim: ClaimKey | None
    claim_uid: str
    #: Terms of which a node must match one; empty is any node.
    affinity: tuple[Term, ...]
    deleting: bool
    #: Its resource version.
    version: str
    #: Its CSI driver; "" if it is of another kind.
    driver: str = ""


@dataclass(frozen=True, slots=True)
class StorageClassView:
    """A StorageClass."""

    name: str
    provisioner: str
    #: WaitForFirstConsumer: a volume is chosen or made once a pod has its node.
    waits: bool
    #: Terms of which a node must match one (allowedTopologies); empty is any node.
    topologies: tuple[Term, ...]
    is_default: bool


@dataclass(frozen=True, slots=True)
class CsiNodeView:
    """A CSINode: how many volumes of each CSI driver a node takes, of drivers that say so."""

    name: str
    limits: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StorageCapacityView:
    """A CSIStorageCapacity: the largest volume of a class that can be made for some nodes."""

    #: Namespace and name.
    key: tuple[str, str]
    storage_class: str
    #: Matched by the nodes that it is for; `()` by all, None by none.
    topology: Term | None
    largest_bytes: int


def read_claim(item: Object) -> ClaimView:
    """Of a v1 PersistentVolumeClaim."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    owners = metadata.get("ownerReferences") or ()
    return ClaimView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        need=claim_need(spec),
        volume=spec.get("volumeName") or "",
        phase=status.get("phase") or "Pending",
        selected_node=(metadata.get("annotations") or {}).get(SELECTED_NODE, ""),
        owner=next((each["uid"] for each in owners if each.get("controller") and each["kind"] == "Pod"), ""),
        deleting="deletionTimestamp" in metadata,
    )


def read_volume(item: Object) -> VolumeView:
    """Of a v1 PersistentVolume."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    claim = spec.get("claimRef") or {}
    labels = metadata.get("labels") or {}
    terms = node_terms((spec.get("nodeAffinity") or {}).get("required") or {})
    for both in zone_terms(labels):
        terms = both_terms(terms, both)
    size = _bytes((spec.get("capacity") or {}).get("storage"))
    return VolumeView(
        name=metadata["name"],
        need=StorageNeed(spec.get("storageClassName") or "", _modes(spec), _volume_mode(spec), size, ()),
        labels=tuple(sorted(labels.items())),
        phase=status.get("phase") or "",
        claim=(claim.get("namespace", ""), claim["name"]) if claim.get("name") else None,
        claim_uid=claim.get("uid") or "",
        affinity=terms,
        deleting="deletionTimestamp" in metadata,
        version=metadata.get("resourceVersion", ""),
        driver=(spec.get("csi") or {}).get("driver") or "",
    )


def read_class(item: Object) -> StorageClassView:
    """Of a storage.k8s.io/v1 StorageClass."""
    metadata = item["metadata"]
    return StorageClassView(
        name=metadata["name"],
        provisioner=item.get("provisioner") or "",
        waits=item.get("volumeBindingMode") == "WaitForFirstConsumer",
        topologies=tuple(
            tuple(
                Requirement(each["key"], "In", tuple(each.get("values") or ()))
                for each in term.get("matchLabelExpressions") or ()
            )
            for term in item.get("allowedTopologies") or ()
        ),
        is_default=(metadata.get("annotations") or {}).get(DEFAULT_CLASS) == "true",
    )


def read_csi_node(item: Object) -> CsiNodeView:
    """Of a storage.k8s.io/v1 CSINode."""
    drivers = (item.get("spec") or {}).get("drivers") or ()
    counts = ((each["name"], (each.get("allocatable") or {}).get("count")) for each in drivers)
    limits = tuple((name, count) for name, count in counts if count is not None)
    return CsiNodeView(item["metadata"]["name"], limits)


def read_storage_capacity(item: Object) -> StorageCapacityView:
    """Of a storage.k8s.io/v1 CSIStorageCapacity."""
    metadata, topology = item["metadata"], item.get("nodeTopology")
    return StorageCapacityView(
        key=(metadata["namespace"], metadata["name"]),
        storage_class=item.get("storageClassName") or "",
        topology=None if topology is None else _selector(topology),
        largest_bytes=_bytes(item.get("maximumVolumeSize") or item.get("capacity")),
    )


def claim_need(spec: Mapping[str, Any]) -> StorageNeed:
    """What the spec of a claim asks of a volume."""
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return StorageNeed(
        spec.get("storageClassName") or "",
        _modes(spec),
        _volume_mode(spec),
        _bytes(asked),
        _selector(spec.get("selector") or {}),
    )


def claims_of(spec: Mapping[str, Any], pod: str) -> Iterator[ClaimUse]:
    """The claims that a pod spec names; a generic ephemeral volume's is named `<pod>-<volume>`."""
    for volume in spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield ClaimUse(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            yield ClaimUse(f"{pod}-{volume['name']}", ephemeral=True)


def templates_of(spec: Mapping[str, Any]) -> tuple[StorageNeed, ...]:
    """What the claims of the generic ephemeral volumes of a pod spec will ask for."""
    templates = (
        (volume.get("ephemeral") or {}).get("volumeClaimTemplate") for volume in spec.get("volumes") or ()
    )
    return tuple(claim_need(template.get("spec") or {}) for template in templates if template)


def both_terms(left: tuple[Term, ...], right: tuple[Term, ...]) -> tuple[Term, ...]:
    """Terms that hold where one of `left` and one of `right` holds; an empty side is no demand."""
    if not left or not right:
        return left or right
    found = tuple(dict.fromkeys((*one, *other) for one in left for other in right if one and other))
    return found or NOWHERE


def zone_terms(labels: Mapping[str, str]) -> Iterator[tuple[Term, ...]]:
    """The terms of a volume's zone and region labels, as kube-scheduler's VolumeZone reads them.

    Several values are joined by "__"; a node without any zone or region passes.
    """
    every = [label for names in ZONE_LABELS for label in names]
    nowhere = tuple(Requirement(label, "DoesNotExist") for label in every)
    for names in ZONE_LABELS:
        for name in names:
            if name in labels:
                values = tuple(labels[name].split("__"))
                yield (*((Requirement(each, "In", values),) for each in names), nowhere)


def _selector(selector: Mapping[str, Any]) -> Term:
    """A label selector."""
    return (
        *(Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()),
        *(
            Requirement(each["key"], each["operator"], tuple(each.get("values") or ()))
            for each in selector.get("matchExpressions") or ()
        ),
    )


def _modes(spec: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(spec.get("accessModes") or ())


def _volume_mode(spec: Mapping[str, Any]) -> str:
    return spec.get("volumeMode") or "Filesystem"


def _bytes(text: object) -> int:
    return math.ceil(quantity(str(text))) if text else 0
