"""Jobs, their tasks and machines while a packed cloud is simulated."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from sim.packing.inputs import Kind, MachineType, PackedJob
from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.plan import TaskKey


class Stage(Enum):
    """What a task is doing. On a machine it is in all but the first, active in STARTING and RUNNING."""

    DOWN = auto()
    LAUNCHING = auto()  # fetching, and waiting for the machine's image
    STARTING = auto()  # no progress yet, but in the way of others
    RUNNING = auto()
    LEAVING = auto()  # told to end, saving its state


ACTIVE = (Stage.STARTING, Stage.RUNNING)


@dataclass(slots=True, eq=False)
class Member:
    """A task of a job in the simulation."""

    #: As packers see it.
    task: Task
    run: Run
    #: Where the last plan wants it.
    target: Machine | None = None
    #: Where it is.
    machine: Machine | None = None
    stage: Stage = Stage.DOWN
    #: Grows with each change of stage, so that steps of a stage that was cut short are told.
    step: int = 0
    #: Since when it has been on its machine.
    since: float = 0.0
    #: True normalised throughput by what is active beside it; its job runs at the lowest of its tasks.
    throughput: float = 1.0

    @property
    def moving(self) -> bool:
        """Whether it is still where it is not wanted."""
        return (
            self.machine is not None and self.machine is not self.target and self.stage is not Stage.LEAVING
        )

    def demand(self, machine: Machine) -> Resources:
        """What it takes of this machine."""
        wanted = self.task.demand(machine.type.offer.family)
        assert wanted is not None
        return wanted


@dataclass(slots=True, eq=False)
class Run:
    """A job in the simulation. Work is in seconds alone on a machine."""

    job: PackedJob
    kind: Kind
    work_s: float
    left_s: float
    members: list[Member] = field(default_factory=list)
    #: Work done per second, and since when.
    rate: float = 0.0
    since: float = 0.0
    #: Since when all its tasks have been active; None if they are not.
    active_since: float | None = None
    active_s: float = 0.0
    #: Seconds in which there was progress.
    running_s: float = 0.0
    #: Grows when the rate changes, so that ends that were foreseen with another are told.
    version: int = 0

    def settle(self, now: float) -> None:
        """Account for the work done up to now. It may have been over before: jobs end on whole seconds."""
        if self.rate > 0:
            ran_s = min(now - self.since, self.left_s / self.rate)
            self.left_s = max(self.left_s - self.rate * ran_s, 0.0)
            self.running_s += ran_s
        self.since = now

    def watch_active(self, now: float) -> None:
        """Account for the time in which all tasks are active."""
        active = all(member.stage in ACTIVE for member in self.members)
        if active and self.active_since is None:
            self.active_since = now
        elif not active and self.active_since is not None:
            self.active_s += now - self.active_since
            self.active_since = None


@dataclass(slots=True, eq=False)
class Machine:
    """A rented machine in the simulation."""

    id: str
    type: MachineType
    #: When it begins to cost money.
    billed_from: float
    ready: bool = False
    #: Who is meant to be on it, and who is.
    held: dict[TaskKey, Member] = field(default_factory=dict)
    on: dict[TaskKey, Member] = field(default_factory=dict)
    #: When its image is built; None until somebody needs it.
    image_at: float | None = None
    #: GPUs, milli-CPUs and MiB that are not taken by those on it.
    free: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = amounts(self.type.offer.resources)

    def has_room(self, demand: Resources) -> bool:
        """Whether a task fits beside those that are on it."""
        return all(want <= have for want, have in zip(amounts(demand), self.free, strict=True))

    def take(self, demand: Resources, times: int) -> None:
        """Take an amount (1) or give it back (-1)."""
        self.free = [have - times * want for have, want in zip(self.free, amounts(demand), strict=True)]


def amounts(resources: Resources) -> list[int]:
    """GPUs, milli-CPUs, MiB."""
    return [resources.gpus, resources.cpu_milli, resources.memory_mib]
