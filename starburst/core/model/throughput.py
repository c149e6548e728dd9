"""What has been learnt of how fast jobs run, alone and beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starburst.domain.job import Job
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.solo_throughput import Alone

#: Sets of workloads that are remembered; the whole table is stored when it changes.
MAX_SETS = 512
#: What nobody has seen is taken to run as fast together as alone, so that reports alone change plans. (Eva's
#: own .95 is for tables that are filled anyway.)
UNSEEN = 1.0


def _table() -> Colocation:
    return Colocation(default=UNSEEN, max_sets=MAX_SETS)


@dataclass(slots=True)
class Speeds:
    """What has been learnt."""

    table: Colocation = field(default_factory=_table)
    alone: Alone = field(default_factory=Alone)
    #: Workloads of the table, and the version they were read at.
    _known: tuple[int, frozenset[str]] = (-1, frozenset())

    def name_of(self, job: Job) -> str:
        """Its name in the table; "" if nothing was seen of it, so that all such jobs are alike."""
        if self._known[0] != self.table.version:
            self._known = self.table.version, self.table.workloads
        return job.known_as if job.known_as in self._known[1] else ""

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain data, for `restored`."""
        return {"table": self.table.snapshot(), "alone": self.alone.snapshot()}

    @classmethod
    def restored(cls, snapshot: Mapping[str, Any]) -> Speeds:
        """What `snapshot` was taken of."""
        return cls(Colocation.restored(snapshot["table"]), Alone.restored(snapshot["alone"]))
