"""Throughput of tasks that share an instance: the co-location throughput table (Eva, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

#: Throughput of a pair that was never observed (Eva, section 4.3: t).
DEFAULT_PAIR = 0.95
#: Sorted workloads of one instance: the key of a set in the table.
Company = tuple[str, ...]


class Throughput(Protocol):
    """Normalised throughput (1 when alone) of tasks by the workloads beside them."""

    def pair(self, workload: str, beside: str) -> float:
        """Throughput of `workload` beside one task of `beside`; the default if it was never observed."""

    def exact(self, company: Company) -> Mapping[str, float] | None:
        """Recorded throughputs of a set of three or more, by workload; None if nothing is recorded.

        The record may be partial; missing workloads are estimated from their pairs.
        """


def throughputs(table: Throughput, workloads: Sequence[str]) -> list[float]:
    """Throughput of each of these tasks on one instance: recorded for the set, else a product over pairs."""
    company = tuple(sorted(workloads))
    recorded = (table.exact(company) if len(company) > 2 else None) or {}
    values = []
    for i, workload in enumerate(workloads):
        value = recorded.get(workload)
        if value is None:
            value = 1.0
            for j, beside in enumerate(workloads):
                if j != i:
                    value *= table.pair(workload, beside)
        values.append(value)
    return values


class NoInterference:
    """Every task runs as fast as when alone."""

    def pair(self, workload: str, beside: str) -> float:
        """Always 1."""
        return 1.0

    def exact(self, company: Company) -> Mapping[str, float] | None:
        """Always None."""
        return None


NO_INTERFERENCE = NoInterference()
