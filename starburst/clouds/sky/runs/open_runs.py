"""The runs whose end is not journaled yet, by machine: each exchange asks for those of one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.runs.peers import TORCHRUN_PORT


class OpenRuns:
    """An index of runs. Their machines and ports do not change while they are open."""

    def __init__(self) -> None:
        self._on: dict[str, dict[tuple[str, int], RunEntry]] = {}
        self._attempts: dict[str, set[int]] = {}
        self._ports_of: dict[tuple[str, int], frozenset[int]] = {}
        self._ports: Counter[int] = Counter()

    @property
    def ports(self) -> Collection[int]:
        """The ports on which the first tasks of runs may listen."""
        return self._ports.keys()

    def add(self, entry: RunEntry) -> None:
        """Take in a run that is not known here."""
        for rank in entry.ranks:
            self._on.setdefault(rank.where, {})[entry.key] = entry
        self._attempts.setdefault(entry.job, set()).add(entry.attempt)
        told = [rank.spec.get("env", {}) for rank in entry.ranks]
        given = (env.get(name, "") for env in told for name in ("MASTER_PORT", TORCHRUN_PORT))
        self._ports_of[entry.key] = ports = frozenset(int(port) for port in given if port.isdecimal())
        self._ports.update(ports)

    def drop(self, entry: RunEntry) -> None:
        """Forget a run, if it is known."""
        for where in {rank.where for rank in entry.ranks}:
            here = self._on.get(where, {})
            here.pop(entry.key, None)
            if not here:
                self._on.pop(where, None)
        attempts = self._attempts.get(entry.job, set())
        attempts.discard(entry.attempt)
        if not attempts:
            self._attempts.pop(entry.job, None)
        for port in self._ports_of.pop(entry.key, ()):
            self._ports[port] -= 1
            if not self._ports[port]:
                del self._ports[port]

    def newest(self, job_id: str) -> int:
        """The last attempt of a job that is open; 0 if none is."""
        return max(self._attempts.get(job_id, ()), default=0)

    def has_any_on(self, instance_id: str) -> bool:
        """Whether a run on a machine has not been reported to its end, checkpoints included."""
        return instance_id in self._on

    def tasks_on(self, instance_id: str) -> Iterator[tuple[RunEntry, RankEntry]]:
        """The tasks on a machine that may be alive, in the order of their runs."""
        for entry in self._on.get(instance_id, {}).values():
            yield from ((entry, rank) for rank in entry.ranks if rank.where == instance_id and not rank.over)
