"""The demand of a pod's claims on its node, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starburst.domain.constraints import NODE_NAME, Requirement, Rules, Term
from starburst.kube.volumes.views import ClaimKey, both_terms

#: Messages of kube-scheduler 1.20, VolumeBinding.
CONFLICT = "node(s) had volume node affinity conflict"
NONE_FREE = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
#: Message of kube-scheduler 1.20, NodeVolumeLimits.
TOO_MANY = "node(s) exceed max volume count"
#: Of a node for which the provisioner has refused to make a volume.
NOT_MADE = "node(s) for which the volume could not be made"

#: A term that every node matches.
ANYWHERE: tuple[Term, ...] = ((Requirement(NODE_NAME, "Exists"),),)


@dataclass(frozen=True, slots=True)
class VolumeRule:
    """Terms of which a node must match one, and what is said of a node that matches none."""

    terms: tuple[Term, ...]
    conflict: str

    def admits(self, node: str, labels: Mapping[str, str]) -> bool:
        """Whether a node matches a term."""
        return Rules(self.terms).admits(node, labels, ())


@dataclass(frozen=True, slots=True)
class VolumeDemand:
    """The demand of all claims of a pod."""

    rules: tuple[VolumeRule, ...] = ()
    #: Claims whose volumes are chosen with the node.
    unbound: tuple[ClaimKey, ...] = ()
    #: Why no node will do now; "" if one may.
    waits: str = ""

    def conflict(self, node: str, labels: Mapping[str, str]) -> str:
        """What keeps the pod off a node; "" if nothing does."""
        return next((rule.conflict for rule in self.rules if not rule.admits(node, labels)), "")

    @property
    def terms(self) -> tuple[Term, ...]:
        """All rules as terms of which a node must match one."""
        found: tuple[Term, ...] = ()
        for rule in self.rules:
            found = both_terms(found, rule.terms)
        return found or ANYWHERE


NO_VOLUMES = VolumeDemand()


@dataclass(frozen=True, slots=True)
class VolumeChoice:
    """What is written before a pod is bound: the volumes of its unbound claims on its node."""

    node: str
    #: Volumes that are kept for a claim: name of the volume, and the claim.
    kept: tuple[tuple[str, ClaimKey], ...] = ()
    #: Claims whose volume is to be made for this node.
    made: tuple[ClaimKey, ...] = ()

    @property
    def claims(self) -> tuple[ClaimKey, ...]:
        """The claims that are to be bound."""
        return (*(claim for _, claim in self.kept), *self.made)
