"""Resources: the demand of a task or the capacity of a node, in GPUs, CPUs, memory and others by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from starburst.domain.gpu_types import takes, types_of
from starburst.domain.value import value

MIB_PER_GIB = 1024
MILLI = 1000
GIB = 1024**3
#: Names of other resources that begin so are host ports, "host-port/TCP/8080", of which a node has one each.
HOST_PORT = "host-port/"
#: The number of tasks that a node takes, among the others of a capacity; every task uses one.
PODS = "pods"

#: Amounts of other resources by name, sorted, in the base unit: bytes, devices, ports.
Others = tuple[tuple[str, int], ...]


@value
class Resources:
    """An amount of resources, in integers so that addition and subtraction are exact.

    In a demand `gpu_type` is a constraint, which `gpu_types.takes` reads: "" accepts any type, and
    "A100 or H100" either. In a capacity it is the type present.
    A capacity without `others` (an embedded node, a rented machine) does not count them.
    """

    gpus: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_type: str = ""
    #: ephemeral-storage, hugepages, extended resources, host ports.
    others: Others = ()

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
            sum_of(self.others, other.others) if self.others or other.others else (),
        )

    def __sub__(self, other: Resources) -> Resources:
        """The difference, of this GPU type; a negative amount is a shortage."""
        return Resources(
            self.gpus - other.gpus,
            self.cpu_milli - other.cpu_milli,
            self.memory_mib - other.memory_mib,
            self.gpu_type,
            sum_of(self.others, other.others, -1) if self.others and other.others else self.others,
        )

    def fits(self, capacity: Resources) -> bool:
        """Whether `capacity` holds this demand, GPU type included."""
        return (
            self.gpus <= capacity.gpus
            and self.cpu_milli <= capacity.cpu_milli
            and self.memory_mib <= capacity.memory_mib
            and (not self.gpus or takes(self.gpu_type, capacity.gpu_type))
            and (not self.others or not capacity.others or others_fit(self.others, dict(capacity.others)))
        )

    def largest_share(self, capacity: Resources) -> float:
        """The dominant share: the largest fraction of `capacity` over GPUs, CPUs and memory."""
        return max(
            self.gpus / capacity.gpus if capacity.gpus else 0.0,
            self.cpu_milli / capacity.cpu_milli if capacity.cpu_milli else 0.0,
            self.memory_mib / capacity.memory_mib if capacity.memory_mib else 0.0,
        )

    def gpu_equivalents(self, cpus_per_gpu: float) -> float:
        """r of the waiting formulas: GPUs plus CPUs at their relative price (Starburst, W_cpu : W_gpu)."""
        return self.gpus + self.cpu_milli / MILLI / cpus_per_gpu

    def __str__(self) -> str:
        return _text_of(self)


@lru_cache(maxsize=10_000)
def _text_of(resources: Resources) -> str:
    """The text of resources, one string for all jobs that need as much."""
    parts = []
    if resources.gpus:
        kind = f"{resources.gpu_type} GPU" if resources.gpu_type else "GPU"
        parts.append(f"{resources.gpus} {kind}{'s' if resources.gpus > 1 else ''}")
    if resources.cpu_milli:
        parts.append(f"{resources.cpus:g} CPU{'s' if resources.cpu_milli != MILLI else ''}")
    if resources.memory_mib:
        small = resources.memory_mib < MIB_PER_GIB
        parts.append(f"{resources.memory_mib} MiB" if small else f"{round(resources.memory_gib, 2):g} GiB")
    parts += [_other_text(name, amount) for name, amount in resources.others]
    return ", ".join(parts) or "nothing"


NOTHING = Resources()


def total(amounts: Iterable[Resources]) -> Resources:
    """The sum of amounts; the GPU type is the first one named."""
    gpus = cpu_milli = memory_mib = 0
    gpu_type = ""
    others: Others = ()
    for amount in amounts:
        gpus += amount.gpus
        cpu_milli += amount.cpu_milli
        memory_mib += amount.memory_mib
        gpu_type = gpu_type or amount.gpu_type
        others = sum_of(others, amount.others) if amount.others else others
    return Resources(gpus, cpu_milli, memory_mib, gpu_type, others)


def of_one_type(tasks: tuple[Resources, ...]) -> Iterator[tuple[Resources, ...]]:
    """The demands of a gang with each GPU type that it takes, as all its GPUs are of one type; or themselves.

    A gang that names no type takes any mixture.
    """
    constraints = {task.gpu_type for task in tasks if task.gpus}
    kinds = types_of(constraints.pop()) if len(constraints) == 1 else ()
    if len(kinds) < 2:
        yield tasks
        return
    for kind in kinds:
        yield tuple(replace(task, gpu_type=kind) if task.gpus else task for task in tasks)


def of_others(free: Mapping[str, int], name: str) -> int:
    """The free amount of another resource: 0 of one that a node does not list, and 1 of a host port."""
    return free.get(name, 1 if name.startswith(HOST_PORT) else 0)


def others_fit(demand: Others, free: Mapping[str, int]) -> bool:
    """Whether these other resources are free."""
    return all(amount <= of_others(free, name) for name, amount in demand)


def sum_of(left: Others, right: Others, times: int = 1) -> Others:
    """`left` plus `times` times `right`, by name.

    A host port that a capacity does not name is free there; of a demand nothing is subtracted.
    """
    amounts = dict(left)
    for name, amount in right:
        start = amounts.get(name, 0) if times > 0 else of_others(amounts, name)
        amounts[name] = start + times * amount
    return tuple(sorted(amounts.items()))


def _other_text(name: str, amount: int) -> str:
    if name.startswith(HOST_PORT):
        return f"host port {name.removeprefix(HOST_PORT)}"
    if name == "ephemeral-storage" or name.startswith("hugepages-"):
        return f"{amount / GIB:.4g} GiB {name}"
    return f"{amount} {name}"
