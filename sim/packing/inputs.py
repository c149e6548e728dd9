"""Inputs of a packed cloud's simulation: instance types, workloads, jobs, true throughputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.policy.packing.throughput import DEFAULT_PAIR, Company


@dataclass(frozen=True, slots=True)
class MachineType:
    """An offer, and the durations of an instance's startup and termination steps (seconds)."""

    #: `ready_s` is the sum of acquisition, setup and registration.
    offer: Offer
    #: From the request until the instance exists and is billed.
    acquire_s: float = 0.0
    setup_s: float = 0.0
    register_s: float = 0.0
    #: From the termination request until billing ends.
    terminate_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A workload: its rate alone on an instance, and the durations of starting and moving a task."""

    name: str
    #: Iterations per second.
    pace: float
    #: Fetching the task's input, at each start.
    fetch_s: float = 0.0
    #: Building the image, once per instance.
    build_s: float = 0.0
    #: Stopping the task, then saving its state.
    kill_s: float = 0.0
    upload_s: float = 0.0
    #: Initialisation before the first iteration.
    init_s: float = 0.0

    @property
    def save_s(self) -> float:
        """From the request to stop until the task has left its instance."""
        return self.kill_s + self.upload_s

    @property
    def move_s(self) -> float:
        """Seconds without progress during a move to a running instance."""
        return self.save_s + self.fetch_s + self.init_s

    def slowed(self, times: float) -> Kind:
        """The workload with all steps of a move taking `times` as long (Eva, section 6.5)."""
        steps = {name: getattr(self, name) * times for name in ("fetch_s", "kill_s", "upload_s", "init_s")}
        return replace(self, **steps)


@dataclass(frozen=True, slots=True)
class PackedJob:
    """A gang of equal tasks, its arrival, and its duration when each task is alone on an instance."""

    id: str
    arrival_s: float
    duration_s: float
    tasks: tuple[Task, ...]
    #: Work in iterations; None is duration × pace, rounded down.
    iterations: int | None = None

    @property
    def workload(self) -> str:
        """The workload of all its tasks."""
        return self.tasks[0].workload


@dataclass(frozen=True, slots=True)
class PairThroughput:
    """True throughputs of pairs; in a larger set a task's throughput is the product over its pairs."""

    values: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default: float = DEFAULT_PAIR

    def pair(self, workload: str, beside: str) -> float:
        """Normalised throughput of `workload` beside one task of `beside`."""
        return self.values.get((workload, beside), self.default)

    def exact(self, company: Company) -> Mapping[str, float] | None:
        """Always None: only pairs are recorded."""
        return None
