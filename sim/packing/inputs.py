"""What a simulation of a packed cloud is made of: machine types, workloads, jobs, true throughputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.policy.packing.throughput import DEFAULT_PAIR, Company


@dataclass(frozen=True, slots=True)
class MachineType:
    """What can be rented, and how long each step of its life takes (seconds)."""

    #: `ready_s` is the sum of acquisition, setup and registration.
    offer: Offer
    #: From asking until it exists and costs money.
    acquire_s: float = 0.0
    setup_s: float = 0.0
    register_s: float = 0.0
    #: From ending it until it costs nothing.
    terminate_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A workload: its pace alone on a machine, and the seconds that starting and moving a task take."""

    name: str
    #: Iterations per second.
    pace: float
    #: Getting what the task needs, at each start.
    fetch_s: float = 0.0
    #: Once per machine.
    build_s: float = 0.0
    #: Telling the task to end, then saving its state.
    kill_s: float = 0.0
    upload_s: float = 0.0
    #: On the machine, before the first iteration.
    init_s: float = 0.0

    @property
    def save_s(self) -> float:
        """From telling a task to end until it has left its machine."""
        return self.kill_s + self.upload_s

    @property
    def move_s(self) -> float:
        """Seconds without progress that a move to a running machine costs."""
        return self.save_s + self.fetch_s + self.init_s

    def slowed(self, times: float) -> Kind:
        """With all that a move is made of taking so many times as long (Eva, section 6.5)."""
        steps = {name: getattr(self, name) * times for name in ("fetch_s", "kill_s", "upload_s", "init_s")}
        return replace(self, **steps)


@dataclass(frozen=True, slots=True)
class PackedJob:
    """A gang of like tasks, when it arrives and how long it takes when each is alone on a machine."""

    id: str
    arrival_s: float
    duration_s: float
    tasks: tuple[Task, ...]
    #: Work in iterations; None is duration × pace, cut to a whole number.
    iterations: int | None = None

    @property
    def workload(self) -> str:
        """What all its tasks run."""
        return self.tasks[0].workload


@dataclass(frozen=True, slots=True)
class Pairs:
    """True throughputs of pairs; a set of more than two runs at the product over its pairs."""

    values: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default: float = DEFAULT_PAIR

    def pair(self, workload: str, beside: str) -> float:
        """Normalised throughput of `workload` beside one task of `beside`."""
        return self.values.get((workload, beside), self.default)

    def exact(self, company: Company) -> Mapping[str, float] | None:
        """Nothing is recorded beyond pairs."""
        return None
