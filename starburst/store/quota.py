"""How many jobs may wait, of one user and in one queue: counted where they are stored, so nothing races."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, func, select

from starburst.domain.job import Phase, Submission
from starburst.store.errors import StoreError
from starburst.store.schema import jobs, requests

#: Phases of jobs that have not had a place yet, or none any more.
PENDING = [phase.value for phase in (Phase.HELD, Phase.BLOCKED, Phase.QUEUED, Phase.OFFLOADING)]


class QuotaError(StoreError):
    """There would be too many jobs waiting."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The most jobs that may wait; 0 is no limit."""

    per_user: int = 0
    per_queue: int = 0
    #: Instead of `per_queue`, of the queues that have one of their own.
    of_queue: Mapping[str, int] = field(default_factory=dict)

    def keep(self, conn: Connection, new: Sequence[Submission]) -> None:
        """Refuse jobs that are more than may wait, within the transaction that has just stored them.

        Raises:
            QuotaError: they are; it says how many there are, come and may be.
        """
        for user, count in Counter(item.job.user for item in new).items():
            _keep(conn, "user", user, count, (self.per_user, "limits.pending_per_user"))
        for queue, count in Counter(item.job.queue for item in new).items():
            own = self.of_queue.get(queue)
            everybodys = (self.per_queue, "limits.pending_per_queue")
            _keep(conn, "queue", queue, count, everybodys if own is None else (own, "its max_pending"))


def _keep(conn: Connection, what: str, name: str, new: int, limit: tuple[int, str]) -> None:
    most, key = limit
    there = _pending(conn, what, name) if most else 0
    if there > most:
        raise QuotaError(
            f"{what} {name or 'nobody'!r} has {there - new} jobs waiting, and these are {new} more: {key} is "
            f"{most}; submit fewer, or wait until some have started"
        )


def _pending(conn: Connection, column: str, value: str) -> int:
    """Jobs that wait, those included that the scheduler has not taken up yet."""
    taken = select(func.count()).where(jobs.c.phase.in_(PENDING), jobs.c[column] == value)
    asked = select(func.count()).where(requests.c.kind == "submit", requests.c[column] == value)
    return (conn.scalar(taken) or 0) + (conn.scalar(asked) or 0)
