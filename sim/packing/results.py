"""Statistics of a cloud with instances shared by jobs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Outcome of one job, seconds."""

    id: str
    arrival_s: float
    end_s: float
    #: Time from arrival to end in which not all its tasks were active.
    idle_s: float
    #: Mean throughput during progress; 1 is alone on an instance.
    throughput: float
    moves: int


@dataclass(frozen=True, slots=True)
class PackedResult:
    """Statistics of one simulation."""

    #: All instances, from the end of acquisition to the end of billing, dollars.
    cost: float
    mean_jct_h: float
    #: Number of instances rented.
    instances: int
    #: Tasks moved between instances, without those restarted only because another task of their job moved.
    migrations: int
    #: Tasks on an instance, including launching and leaving ones, averaged over paid instance time.
    tasks_per_instance: float
    #: Share of the paid resources that tasks occupied, over time.
    gpu_allocation: float
    cpu_allocation: float
    ram_allocation: float
    #: Share of the plans whose reason begins with "full".
    full_share: float
    plans: int
    mean_idle_h: float
    mean_throughput: float
    #: The packer's lower bounds integrated over time, dollars; None if it gives none.
    bound: float | None
    #: CPU time in total and in the packer; the only values that differ between runs.
    cpu_seconds: float = field(compare=False)
    packer_cpu_seconds: float = field(compare=False)
    jobs: tuple[JobOutcome, ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The statistics under stable keys, as in `-o json`; of the jobs only their number."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        allocation = {kind: figures.pop(f"{kind}_allocation") for kind in ("gpu", "cpu", "ram")}
        return figures | {"allocation": allocation, "jobs_counted": len(figures.pop("jobs"))}
