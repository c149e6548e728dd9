"""Quotas of pending jobs per user and queue, checked in the transaction that stores them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from sqlalchemy import BindParameter, Connection, Select, bindparam, func, select

from starburst.domain.array import jobs_in
from starburst.domain.job import Phase, Submission
from starburst.store.errors import StoreError
from starburst.store.schema import arrays, jobs, requests

#: Phases of jobs without a placement.
PENDING = [phase.value for phase in (Phase.HELD, Phase.BLOCKED, Phase.QUEUED, Phase.OFFLOADING)]


class QuotaError(StoreError):
    """More jobs would be pending than the quota allows."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The largest numbers of pending jobs; 0 is no limit."""

    per_user: int = 0
    per_queue: int = 0
    #: Overrides of `per_queue` by queue.
    of_queue: Mapping[str, int] = field(default_factory=dict)

    def keep(self, conn: Connection, new: Sequence[Submission]) -> None:
        """Refuse jobs beyond the quota, within the transaction that has just stored them.

        Raises:
            QuotaError: a limit is exceeded; the message names the counts and the limit.
        """
        for user, count in _counted((item.job.user, jobs_in(item)) for item in new).items():
            _keep(conn, "user", user, count, (self.per_user, "limits.pending_per_user"))
        for queue, count in _counted((item.job.queue, jobs_in(item)) for item in new).items():
            own = self.of_queue.get(queue)
            everybodys = (self.per_queue, "limits.pending_per_queue")
            _keep(conn, "queue", queue, count, everybodys if own is None else (own, "its max_pending"))


def _counted(numbers: Iterable[tuple[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for name, number in numbers:
        total[name] += number
    return total


def _keep(conn: Connection, what: str, name: str, new: int, limit: tuple[int, str]) -> None:
    most, key = limit
    there = _pending(conn, what, name) if most else 0
    if there > most:
        raise QuotaError(
            f"{what} {name or 'nobody'!r} has {there - new} jobs waiting, and these are {new} more: {key} is "
            f"{most}; submit fewer, or wait until some have started"
        )


def _pending(conn: Connection, column: str, value: str) -> int:
    """The number of pending jobs, including those not yet taken up."""
    return sum(int(conn.scalar(counted, {"value": value}) or 0) for counted in _counts(column))


@cache
def _counts(column: str) -> tuple[Select[int], ...]:
    """Count the jobs taken up, and those that are not, of one user or queue."""
    value: BindParameter[str] = bindparam("value")
    return (
        select(func.count()).where(jobs.c.phase.in_(PENDING), jobs.c[column] == value),
        select(func.count()).where(requests.c.kind == "submit", requests.c[column] == value),
        select(func.sum(arrays.c.jobs_left)).where(arrays.c[column] == value),
    )
