"""The simulated cloud as read from its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sim.packing.inputs import Kind, MachineType, PairThroughput
from sim.readers.packing import read_catalog, read_throughput, read_workloads
from starburst.domain.cloud import Offer


@dataclass(frozen=True, slots=True)
class CloudModel:
    """Instance types, workloads, and their throughputs beside each other."""

    catalog: list[MachineType]
    kinds: dict[str, Kind]
    truth: PairThroughput

    @classmethod
    def read(
        cls,
        catalog: Path,
        workloads: Path,
        colocation: Path | None,
        *,
        cpu_column: str | None = None,
        uniform_throughput: float | None = None,
    ) -> CloudModel:
        """Read the files; without a file of throughputs each pair has the uniform one (default 1).

        Raises:
            SimulationError: with file, line and column of all that is wrong.
        """
        uniform = PairThroughput(default=1.0 if uniform_throughput is None else uniform_throughput)
        return cls(
            read_catalog(catalog, cpu_column=cpu_column),
            read_workloads(workloads),
            uniform if colocation is None else read_throughput(colocation),
        )

    @property
    def offers(self) -> list[Offer]:
        """The offers of the catalog."""
        return [machine.offer for machine in self.catalog]

    @property
    def most_gpus(self) -> int:
        """GPUs of the largest offer."""
        return max((offer.resources.gpus for offer in self.offers), default=0)

    @property
    def measured(self) -> list[str]:
        """Workloads with known throughputs beside others; all workloads if there are none."""
        known = {workload for pair in self.truth.values for workload in pair}
        return [name for name in self.kinds if name in known] or list(self.kinds)
