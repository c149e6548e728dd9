"""Node constraints of a task besides resources: taints, tolerations and node affinity of Kubernetes.

Semantics: Kubernetes documentation, "Taints and Tolerations" and "Assigning Pods to Nodes".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: In a requirement this key denotes the node's name (`matchFields` of a manifest), not a label.
NODE_NAME = "metadata.name"

#: Effects of taints that exclude a task; PreferNoSchedule is only a preference.
REPELLING = frozenset({"NoSchedule", "NoExecute"})

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node. `effect`: NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    @property
    def repels(self) -> bool:
        """Whether it excludes tasks that do not tolerate it."""
        return self.effect in REPELLING


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a task. An empty key matches every key, an empty effect every effect."""

    key: str = ""
    #: "Exists" for any value of the taint, or "Equal".
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether it tolerates the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator == "Equal" and self.value == taint.value


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on one label of a node: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it. NotIn also holds for an absent key; Gt and Lt compare 64-bit integers."""
        value = labels.get(self.key)
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        if self.operator == "Exists":
            return value is not None
        if self.operator == "DoesNotExist":
            return value is None
        if self.operator not in ("Gt", "Lt") or len(self.values) != 1:
            return False
        have, bound = _whole(value), _whole(self.values[0])
        if have is None or bound is None:
            return False
        return have > bound if self.operator == "Gt" else have < bound


def _whole(text: str | None) -> int | None:
    if text is None or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


#: A conjunction of requirements; an empty term matches no node.
Term = tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """Affinity and tolerations of a task. The default admits every untainted node."""

    #: At least one term must match; an empty tuple is no demand.
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def admits(self, node_name: str, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
        """Whether a task with these rules may be placed on a node."""
        for taint in taints:
            if taint.repels and not any(answer.tolerates(taint) for answer in self.tolerations):
                return False
        if not self.affinity:
            return True
        seen = {**labels, NODE_NAME: node_name}
        return any(term and all(each.holds(seen) for each in term) for term in self.affinity)


ANY_UNTAINTED = Rules()
