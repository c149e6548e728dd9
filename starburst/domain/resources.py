"""Resources: the demand of a task or the capacity of a node, in GPUs, CPUs and memory."""

from __future__ import annotations

from collections.abc import Iterable

from starburst.domain.value import value

MIB_PER_GIB = 1024
MILLI = 1000


@value
class Resources:
    """An amount of GPUs, CPUs and memory, in integers so that addition and subtraction are exact.

    In a demand `gpu_type` is a constraint ("" accepts any type); in a capacity it is the type present.
    """

    gpus: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_type: str = ""

    @classmethod
    def of(cls, gpus: int = 0, cpus: float = 0, memory_gib: float = 0, gpu_type: str = "") -> Resources:
        """Build from CPUs and GiB, rounded to the nearest milli-CPU and MiB."""
        return cls(gpus, round(cpus * MILLI), round(memory_gib * MIB_PER_GIB), gpu_type)

    @property
    def cpus(self) -> float:
        """CPUs (cores)."""
        return self.cpu_milli / MILLI

    @property
    def memory_gib(self) -> float:
        """Memory in GiB."""
        return self.memory_mib / MIB_PER_GIB

    def __add__(self, other: Resources) -> Resources:
        """The sum; the GPU type is the first one named."""
        return Resources(
            self.gpus + other.gpus,
            self.cpu_milli + other.cpu_milli,
            self.memory_mib + other.memory_mib,
            self.gpu_type or other.gpu_type,
        )

    def __sub__(self, other: Resources) -> Resources:
        """The difference, of this GPU type; a negative amount is a shortage."""
        return Resources(
            self.gpus - other.gpus,
            self.cpu_milli - other.cpu_milli,
            self.memory_mib - other.memory_mib,
            self.gpu_type,
        )

    def fits(self, capacity: Resources) -> bool:
        """Whether `capacity` holds this demand, GPU type included."""
        return (
            self.gpus <= capacity.gpus
            and self.cpu_milli <= capacity.cpu_milli
            and self.memory_mib <= capacity.memory_mib
            and (not self.gpu_type or not self.gpus or self.gpu_type == capacity.gpu_type)
        )

    def largest_share(self, capacity: Resources) -> float:
        """The dominant share: the largest fraction of `capacity` over GPUs, CPUs and memory."""
        pairs = (
            (self.gpus, capacity.gpus),
            (self.cpu_milli, capacity.cpu_milli),
            (self.memory_mib, capacity.memory_mib),
        )
        return max([have / of for have, of in pairs if of], default=0.0)

    def gpu_equivalents(self, cpus_per_gpu: float) -> float:
        """r of the waiting formulas: GPUs plus CPUs at their relative price (Starburst, W_cpu : W_gpu)."""
        return self.gpus + self.cpu_milli / MILLI / cpus_per_gpu

    def __str__(self) -> str:
        parts = []
        if self.gpus:
            kind = f"{self.gpu_type} GPU" if self.gpu_type else "GPU"
            parts.append(f"{self.gpus} {kind}{'s' if self.gpus > 1 else ''}")
        if self.cpu_milli:
            parts.append(f"{self.cpus:g} CPU{'s' if self.cpu_milli != MILLI else ''}")
        if self.memory_mib:
            small = self.memory_mib < MIB_PER_GIB
            parts.append(f"{self.memory_mib} MiB" if small else f"{self.memory_gib:g} GiB")
        return ", ".join(parts) or "nothing"


NOTHING = Resources()


def total(amounts: Iterable[Resources]) -> Resources:
    """The sum of amounts; the GPU type is the first one named."""
    gpus = cpu_milli = memory_mib = 0
    gpu_type = ""
    for amount in amounts:
        gpus += amount.gpus
        cpu_milli += amount.cpu_milli
        memory_mib += amount.memory_mib
        gpu_type = gpu_type or amount.gpu_type
    return Resources(gpus, cpu_milli, memory_mib, gpu_type)
