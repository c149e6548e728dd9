"""The runs whose end is not journaled yet, by machine: each exchange asks for those of one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from starburst.clouds.sky.runs.entry import RankEntry, RunEntry


class OpenRuns:
    """An index of runs. Their machines and ports do not change while they are open."""

    def __init__(self) -> None:
        self._on: dict[str, dict[tuple[str, int], RunEntry]] = {}
        self._ports_of: dict[tuple[str, int], frozenset[int]] = {}
        self._ports: Counter[int] = Counter()

    @property
    def ports(self) -> Collection[int]:
        """The ports on which the first tasks of gangs may listen."""
        return self._ports.keys()

    def add(self, entry: RunEntry) -> None:
        """Take in a run that is not known here."""
        for rank in entry.ranks:
            self._on.setdefault(rank.where, {})[entry.key] = entry
        told = [rank.spec.get("env", {}).get("MASTER_PORT", "") for rank in entry.ranks]
        self._ports_of[entry.key] = ports = frozenset(int(port) for port in told if port.isdecimal())
        self._ports.update(ports)

    def drop(self, entry: RunEntry) -> None:
        """Forget a run, if it is known."""
        for where in {rank.where for rank in entry.ranks}:
            here = self._on.get(where, {})
            here.pop(entry.key, None)
            if not here:
                self._on.pop(where, None)
        for port in self._ports_of.pop(entry.key, ()):
            self._ports[port] -= 1
            if not self._ports[port]:
                del self._ports[port]

    def has_any_on(self, instance_id: str) -> bool:
        """Whether a run on a machine has not been reported to its end, checkpoints included."""
        return instance_id in self._on

    def tasks_on(self, instance_id: str) -> Iterator[tuple[RunEntry, RankEntry]]:
        """The tasks on a machine that may be alive, in the order of their runs."""
        for entry in self._on.get(instance_id, {}).values():
            yield from ((entry, rank) for rank in entry.ranks if rank.where == instance_id and not rank.over)
