"""How fast tasks run beside each other: the co-location throughput table (Eva, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

#: Throughput of a pair that was never seen (Eva, section 4.3: t).
DEFAULT_PAIR = 0.95
#: Workloads on one machine, sorted: names a set of tasks in the table.
Company = tuple[str, ...]


class Throughput(Protocol):
    """Normalised throughput (1 is alone on a machine) of tasks by what runs beside them."""

    def pair(self, workload: str, beside: str) -> float:
        """Of `workload` beside one task of `beside`; the default if it was never seen."""

    def exact(self, company: Company) -> Mapping[str, float] | None:
        """Of every workload of a recorded set of three or more; None if that set was never seen.

        What is recorded may be a part of the set: workloads that are missing are as their pairs say.
        """


def throughputs(table: Throughput, workloads: Sequence[str]) -> list[float]:
    """Of every task of a machine that holds these: recorded for the set, else the product over pairs."""
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
    """Everything runs as if it were alone."""

    def pair(self, workload: str, beside: str) -> float:
        """Always 1."""
        return 1.0

    def exact(self, company: Company) -> Mapping[str, float] | None:
        """Nothing is recorded."""
        return None


NO_INTERFERENCE = NoInterference()
