"""How much room storage systems have left for volumes that are made, where they publish it.

Semantics: the capacity check of kube-scheduler's VolumeBinding. A class of which no CSIStorageCapacity is
published is not limited; kube-scheduler asks the CSIDriver for that instead.
"""

from __future__ import annotations

from collections import defaultdict

from starburst.domain.constraints import Term
from starburst.kube.volumes.views import NOWHERE, StorageCapacityView


class StorageRoom:
    """What is published, by storage class."""

    def __init__(self) -> None:
        self._published: defaultdict[str, dict[tuple[str, str], StorageCapacityView]] = defaultdict(dict)

    def changed(self, old: StorageCapacityView | None, new: StorageCapacityView | None) -> None:
        """A CSIStorageCapacity is new, another or gone."""
        if old is not None:
            self._published[old.storage_class].pop(old.key, None)
        if new is not None:
            self._published[new.storage_class][new.key] = new

    def terms(self, storage_class: str, size_bytes: int) -> tuple[Term, ...]:
        """Terms of which a node must match one so that a volume of this size is made; empty is any node."""
        published = self._published.get(storage_class)
        if not published or not size_bytes:
            return ()
        enough = [each.topology for each in published.values() if each.largest_bytes >= size_bytes]
        if any(term == () for term in enough):
            return ()
        return tuple(dict.fromkeys(term for term in enough if term)) or NOWHERE
