"""How many volumes of a CSI driver each node takes, and which claims its pods use.

Semantics: kube-scheduler's NodeVolumeLimits: a claim counts once on a node, however many pods use it there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection

from starburst.kube.volumes.views import ClaimKey, CsiNodeView


class Attachments:
    """`driver_of` names the CSI driver of a claim, "" if it has none or none is known."""

    def __init__(self, driver_of: Callable[[ClaimKey], str]) -> None:
        self._driver_of = driver_of
        #: By driver and node.
        self._limits: defaultdict[str, dict[str, int]] = defaultdict(dict)
        #: How many pods of a node use each claim.
        self._used: defaultdict[str, Counter[ClaimKey]] = defaultdict(Counter)
        #: Volumes by node and driver, as counted last.
        self._counted: dict[tuple[str, str], int] = {}

    def node_changed(self, old: CsiNodeView | None, new: CsiNodeView | None) -> None:
        """The CSINode of a node is new, another or gone."""
        for driver, _ in old.limits if old is not None else ():
            self._limits[driver].pop(old.name, None)  # type: ignore[union-attr]
        for driver, limit in new.limits if new is not None else ():
            self._limits[driver][new.name] = limit  # type: ignore[union-attr]

    def used(self, node: str, claim: ClaimKey, pods: int) -> None:
        """One pod more (1) or less (-1) of a node uses a claim."""
        claims = self._used[node]
        claims[claim] += pods
        if claims[claim] <= 0:
            del claims[claim]
        if not claims:
            del self._used[node]
        self.recount({node})

    def recount(self, nodes: Collection[str] | None = None) -> None:
        """The drivers of claims on these nodes, by default on all, may be others than before."""
        if nodes is None:
            self._counted.clear()
        for key in [key for key in self._counted if key[0] in nodes] if nodes else ():
            del self._counted[key]

    def limited(self, node: str) -> bool:
        """Whether a node limits the volumes of any driver."""
        return any(node in limits for limits in self._limits.values())

    def full(self, driver: str, claims: Collection[ClaimKey], more: int) -> tuple[str, ...]:
        """The nodes that do not take the volumes of these claims, and of `more` that have no name yet."""
        return tuple(
            sorted(
                node
                for node, limit in self._limits.get(driver, {}).items()
                if 0 < self._new(node, claims) + more > limit - self._count(node, driver)
            )
        )

    def _new(self, node: str, claims: Collection[ClaimKey]) -> int:
        there: Counter[ClaimKey] = self._used.get(node, Counter())
        return sum(claim not in there for claim in claims)

    def _count(self, node: str, driver: str) -> int:
        found = self._counted.get((node, driver))
        if found is None:
            found = sum(self._driver_of(claim) == driver for claim in self._used.get(node, ()))
            self._counted[node, driver] = found
        return found
