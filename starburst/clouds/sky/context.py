"""What all parts of the SkyPilot cloud share: ports, journal, clock, settings, and where events go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from starburst.aio import TaskSet, Wake
from starburst.clouds.sky.access.boundary import contained
from starburst.clouds.sky.access.ports import (
    CloudApi,
    LocalError,
    MachineTransport,
    SkyApi,
    SkyUnreachableError,
)
from starburst.clouds.sky.journal import Journal
from starburst.clouds.sky.machines.listing import SharedListing
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.network_tier import STANDARD
from starburst.clouds.sky.runs.inputs import RunInputs
from starburst.clouds.sky.runs.storage import all_mounts
from starburst.core.model.events import Event
from starburst.domain.clock import Pace
from starburst.domain.money import Money
from starburst.runs.fence import always
from starburst.runs.ports import Report
from starburst.runs.processes import unwatched
from starburst.runs.supervisor.log_pump import MAX_LOG
from translator.carried import CloudStorage


@dataclass(frozen=True, slots=True)
class SkySettings:
    """Settings of one controller's rented machines."""

    owner: str
    controller: str
    #: Directories for logs of runs, and for checkpoints on this side.
    logs: Path
    checkpoints: Path
    #: A machine ends by itself `lease_s` plus `idle_minutes` after its lease was last renewed.
    lease_s: float = 900.0
    idle_minutes: int = 5
    #: Seconds after which a launch has failed.
    launch_limit_s: float = 1800.0
    #: URL of a bucket for checkpoints that every machine mounts; None copies them to machines and back.
    bucket: str | None = None
    #: SkyPilot's network tier for clusters of several machines.
    network_tier: str = STANDARD
    #: The offers have prices of the user's; SkyPilot is not asked for prices.
    own_prices: bool = False
    #: Per hour and machine, beside the prices of offers and of SkyPilot.
    extra: Money = field(default_factory=Money)
    #: Bytes of one task's output that are kept.
    max_log: int = MAX_LOG


@dataclass(frozen=True, slots=True)
class SkyClock:
    """The scheduler's clock, and the wall clock that belongs to it."""

    #: Scheduler seconds.
    now: Callable[[], float]
    pace: Pace

    def wall(self) -> float:
        """Wall time, epoch seconds."""
        return self.pace.wall_time(self.now())

    def since(self, start: float, epoch_s: float) -> float:
        """A time of another clock in scheduler seconds, neither before `start` nor in the future."""
        return min(max(start, self.pace.scheduler_time(epoch_s)), self.now())


class EventSink:
    """Passes events on to the controller that watches; drops them while none does."""

    def __init__(self) -> None:
        self.listener: Report = unwatched

    def __call__(self, event: Event) -> None:
        """Report an event."""
        self.listener(event)


@dataclass(frozen=True)
class SkyContext:
    """The collaborators of machines and runs. What its ports raise is a `SkyError`, whoever raised it."""

    sky: SkyApi
    clouds: CloudApi
    transport: MachineTransport
    journal: Journal
    clock: SkyClock
    settings: SkySettings
    inputs: RunInputs = field(default_factory=RunInputs)
    #: Whether this process leads for certain; if not, exchanges renew leases and change nothing else.
    certain: Callable[[], bool] = always
    report: EventSink = field(default_factory=EventSink, init=False)
    tasks: TaskSet = field(default_factory=TaskSet, init=False)
    #: Rung when a machine stops answering: its cloud is to be asked now.
    suspicion: Wake = field(default_factory=Wake, init=False)

    def __post_init__(self) -> None:
        # A failure of the transport's own code says nothing about the machine that was called.
        ports = {"sky": SkyUnreachableError, "clouds": SkyUnreachableError, "transport": LocalError}
        for name, foreign in ports.items():
            object.__setattr__(self, name, contained(getattr(self, name), foreign))

    @cached_property
    def naming(self) -> Naming:
        """The names of this controller's clusters."""
        return Naming(self.settings.owner, self.settings.controller)

    @cached_property
    def listing(self) -> SharedListing:
        """SkyPilot's listing for machines that ask one by one."""
        return SharedListing(self.sky.clusters, self.tasks)

    @cached_property
    def mounts(self) -> tuple[tuple[str, CloudStorage], ...]:
        """What every machine mounts, and where."""
        return all_mounts(self.inputs.stores)
