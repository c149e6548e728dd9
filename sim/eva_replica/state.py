"""Jobs, tasks and instances of the simulated packed cloud."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from sim.packing.inputs import Kind, MachineType, PackedJob
from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.plan import TaskKey


class Stage(Enum):
    """Stage of a task. It occupies an instance in all but DOWN, and is active in STARTING and RUNNING."""

    DOWN = auto()
    LAUNCHING = auto()  # fetching, and waiting for the instance's image
    STARTING = auto()  # no progress yet, but interferes with others
    RUNNING = auto()
    LEAVING = auto()  # told to stop, saving its state


ACTIVE = (Stage.STARTING, Stage.RUNNING)


@dataclass(slots=True, eq=False)
class SimulatedTask:
    """A task of a job during the simulation."""

    #: The task as given to packers.
    task: Task
    run: JobProgress
    #: Instance assigned by the last plan.
    target: Machine | None = None
    #: Current instance.
    machine: Machine | None = None
    stage: Stage = Stage.DOWN
    #: Grows with each change of stage, so that pending events of an interrupted stage are recognised.
    step: int = 0
    #: Time at which it was placed on its current instance.
    since: float = 0.0
    #: True normalised throughput beside the active tasks; a job runs at the lowest of its tasks.
    throughput: float = 1.0

    @property
    def moving(self) -> bool:
        """Whether it occupies an instance other than its target and is not leaving yet."""
        return (
            self.machine is not None and self.machine is not self.target and self.stage is not Stage.LEAVING
        )

    def demand(self, machine: Machine) -> Resources:
        """Resources that it needs on this instance."""
        wanted = self.task.demand(machine.type.offer.family)
        assert wanted is not None
        return wanted


@dataclass(slots=True, eq=False)
class JobProgress:
    """A job during the simulation. Work is in seconds of undisturbed run time."""

    job: PackedJob
    kind: Kind
    work_s: float
    left_s: float
    members: list[SimulatedTask] = field(default_factory=list)
    #: Rate (work per second), and the time of the last settlement.
    rate: float = 0.0
    since: float = 0.0
    #: Time since which all its tasks are active; None if they are not.
    active_since: float | None = None
    active_s: float = 0.0
    #: Seconds with progress.
    running_s: float = 0.0
    #: Grows when the rate changes, so that ends scheduled at an earlier rate are recognised.
    version: int = 0

    def settle(self, now: float) -> None:
        """Account for the work done until now. The work may have ended before: jobs end on whole seconds."""
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
    """A rented instance during the simulation."""

    id: str
    type: MachineType
    #: Time from which it is billed.
    billed_from: float
    ready: bool = False
    #: Tasks assigned to it, and tasks that occupy it.
    held: dict[TaskKey, SimulatedTask] = field(default_factory=dict)
    on: dict[TaskKey, SimulatedTask] = field(default_factory=dict)
    #: Time at which its image is built; None until a task needs it.
    image_at: float | None = None
    #: Free GPUs, milli-CPUs and MiB.
    free: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = amounts(self.type.offer.resources)

    def has_room(self, demand: Resources) -> bool:
        """Whether a task fits beside the tasks that occupy it."""
        return all(want <= have for want, have in zip(amounts(demand), self.free, strict=True))

    def take(self, demand: Resources, times: int) -> None:
        """Occupy (1) or free (-1) an amount."""
        self.free = [have - times * want for have, want in zip(self.free, amounts(demand), strict=True)]


def amounts(resources: Resources) -> list[int]:
    """GPUs, milli-CPUs, MiB."""
    return [resources.gpus, resources.cpu_milli, resources.memory_mib]
