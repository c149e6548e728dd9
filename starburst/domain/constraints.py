"""What keeps a task off a node besides room: taints, tolerations and node affinity, as Kubernetes has them.

Semantics: Kubernetes documentation, "Taints and Tolerations" and "Assigning Pods to Nodes".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: In a requirement this key is no label but the node's name (`matchFields` of a manifest).
NODE_NAME = "metadata.name"

#: Effects of taints that keep a task away; PreferNoSchedule is only a wish.
REPELLING = frozenset({"NoSchedule", "NoExecute"})

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's word that keeps tasks away. `effect`: NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    @property
    def repels(self) -> bool:
        """Whether it keeps away tasks that do not tolerate it."""
        return self.effect in REPELLING


@dataclass(frozen=True, slots=True)
class Toleration:
    """A task's answer to taints. An empty key is every key, an empty effect every effect."""

    key: str = ""
    #: "Exists" whatever the taint's value, or "Equal".
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint no longer matters."""
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
        """Whether it is so. NotIn also holds of an absent key; Gt and Lt compare whole numbers of 64 bits."""
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


#: All of its requirements must hold; a term without any matches no node.
Term = tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a task demands of its node besides room and labels. The default admits every untainted node."""

    #: One of these terms must match; none at all is no demand.
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
