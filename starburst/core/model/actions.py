"""Actions that the scheduler requests of a site. Each has an idempotency key."""

from __future__ import annotations

from collections.abc import Sequence

from starburst.domain.job import Site
from starburst.domain.resources import Resources
from starburst.domain.value import value


@value
class Slot:
    """Resources for one task of a run; `where` is a node's name or an instance's id."""

    rank: int
    where: str
    resources: Resources
    #: The machine within an instance of several, from 0.
    node: int = 0


def places(slots: Sequence[Slot]) -> Sequence[str]:
    """The nodes or instances of some slots, each once; most jobs have one slot."""
    return [slots[0].where] if len(slots) == 1 else list(dict.fromkeys([slot.where for slot in slots]))


@value
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


@value
class StopRun:
    """End this attempt: SIGTERM, the grace, then SIGKILL. `RunEnded` confirms it."""

    job_id: str
    attempt: int
    site: Site
    grace_s: float

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"stop/{self.job_id}/{self.attempt}"


@value
class LaunchInstance:
    """Launch one instance; `instance_id` is its launch intent."""

    instance_id: str
    offer_name: str
    #: Number of machines of this offer that are launched as one.
    nodes: int = 1

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"launch/{self.instance_id}"


@value
class TerminateInstance:
    """Terminate one instance; `InstanceGone` confirms it."""

    instance_id: str

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"terminate/{self.instance_id}"


@value
class PrepareRun:
    """Have the image of a job pulled where its next attempt will start, while that comes up.

    A hint: what is not prepared is done at the start.
    """

    job_id: str
    attempt: int
    slots: tuple[Slot, ...]

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"prepare/{self.job_id}/{self.attempt}"


Action = StartRun | StopRun | PrepareRun | LaunchInstance | TerminateInstance
