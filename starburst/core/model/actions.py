"""What the scheduler asks the world to do. Each action has a key: doing it twice is doing it once."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.domain.job import Site
from starburst.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one task of a run goes: a node's name, or an instance's id."""

    rank: int
    where: str
    resources: Resources


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start this attempt of a job, one process group per slot."""

    job_id: str
    attempt: int
    site: Site
    slots: tuple[Slot, ...]

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"start/{self.job_id}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class StopRun:
    """End this attempt: SIGTERM, a grace, SIGKILL. `RunEnded` confirms it."""

    job_id: str
    attempt: int
    site: Site
    grace_s: float

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"stop/{self.job_id}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class LaunchInstance:
    """Rent one machine; `instance_id` is the intent it is made under."""

    instance_id: str
    offer_name: str

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"launch/{self.instance_id}"


@dataclass(frozen=True, slots=True)
class TerminateInstance:
    """Give one machine back; `InstanceGone` confirms it."""

    instance_id: str

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"terminate/{self.instance_id}"


Action = StartRun | StopRun | LaunchInstance | TerminateInstance
