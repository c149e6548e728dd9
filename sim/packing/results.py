"""The figures of a cloud whose machines jobs share."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How one job fared, seconds."""

    id: str
    arrival_s: float
    end_s: float
    #: From arrival to end without the times in which all its tasks were active.
    idle_s: float
    #: Mean while there was progress; 1 is alone on a machine.
    throughput: float
    moves: int


@dataclass(frozen=True, slots=True)
class PackedResult:
    """The figures of one simulation."""

    #: All machines, from the end of their acquisition until they are gone, dollars.
    cost: float
    mean_jct_h: float
    #: Machines rented in all.
    instances: int
    #: Tasks taken from one machine to another, without those that start anew as another of their job moves.
    migrations: int
    #: Tasks on a machine, launching and leaving ones too, as the mean over the time machines were paid for.
    tasks_per_instance: float
    #: Share that tasks take of the machines paid for, over time.
    gpu_allocation: float
    cpu_allocation: float
    ram_allocation: float
    #: Share of the plans whose reason begins with "full".
    full_share: float
    plans: int
    mean_idle_h: float
    mean_throughput: float
    #: No plan costs less, whatever runs: the packer's lower bounds over time, dollars; None if it gives none.
    bound: float | None
    #: Of this machine, in all and in the packer; the only figures that differ from one run to the next.
    cpu_seconds: float = field(compare=False)
    packer_cpu_seconds: float = field(compare=False)
    jobs: tuple[JobOutcome, ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The figures with stable keys, as in `-o json`; of the jobs only their number."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        allocation = {kind: figures.pop(f"{kind}_allocation") for kind in ("gpu", "cpu", "ram")}
        return figures | {"allocation": allocation, "jobs_counted": len(figures.pop("jobs"))}
