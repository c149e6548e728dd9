"""Room on rented machines that others need for longer anyway: what has changed since queued jobs saw it."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.core.model.jobs import JobRecord


@dataclass(slots=True)
class Unseen:
    """Jobs that have seen no machine, and machines that no queued job has seen as they are now."""

    jobs: list[JobRecord]
    machines: dict[str, None]

    def __bool__(self) -> bool:
        return bool(self.jobs or self.machines)


class SpareRoom:
    """Remembers which pairs of a queued job and a machine have not been looked at.

    The others need no second look: a machine that does not change has less time left with every second.
    """

    def __init__(self) -> None:
        self.unseen = Unseen([], {})

    def queued(self, record: JobRecord) -> None:
        """The job has joined the queue."""
        self.unseen.jobs.append(record)

    def changed(self, machine: str) -> None:
        """The machine is new, or has more or less to do."""
        self.unseen.machines[machine] = None

    def take(self) -> Unseen:
        """What has changed since the last call."""
        unseen, self.unseen = self.unseen, Unseen([], {})
        return unseen
