"""What is learnt in the cloud: throughputs alone and on shared instances, pulls of images, boots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starburst.domain.job import Job
from starburst.policy.boot_times import BootTimes
from starburst.policy.image_pulls import PullTimes
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.solo_throughput import Alone

#: Largest number of co-located sets in the table, which is stored as a whole at each change.
MAX_SETS = 512
#: Assumed throughput of a set without observations: no interference, so that only reports change plans. (Eva
#: uses .95, for a table that is filled in advance.)
UNSEEN = 1.0


def _table() -> Colocation:
    return Colocation(default=UNSEEN, max_sets=MAX_SETS)


@dataclass(slots=True)
class Speeds:
    """The co-location table, the solo rates, the pulls of images, and the boots of instances."""

    table: Colocation = field(default_factory=_table)
    alone: Alone = field(default_factory=Alone)
    pulls: PullTimes = field(default_factory=PullTimes)
    boots: BootTimes = field(default_factory=BootTimes)
    #: Cache: version of the table, and its workloads at that version.
    _known: tuple[int, frozenset[str]] = (-1, frozenset())

    def name_of(self, job: Job) -> str:
        """The job's workload in the table; "" if it has none, so that all such jobs compare equal."""
        if self._known[0] != self.table.version:
            self._known = self.table.version, self.table.workloads
        return job.known_as if job.known_as in self._known[1] else ""

    def snapshot(self) -> dict[str, Any]:
        """Plain data for `restored`."""
        return {
            "table": self.table.snapshot(),
            "alone": self.alone.snapshot(),
            "pulls": self.pulls.snapshot(),
            "boots": self.boots.snapshot(),
        }

    @classmethod
    def restored(cls, snapshot: Mapping[str, Any]) -> Speeds:
        """The inverse of `snapshot`."""
        return cls(
            Colocation.restored(snapshot["table"]),
            Alone.restored(snapshot["alone"]),
            PullTimes.restored(snapshot.get("pulls", {})),  # snapshots of older versions lack these two
            BootTimes.restored(snapshot.get("boots", {})),
        )
