"""Caps on spending: whom one covers, and in which window of the UTC calendar its money is counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from starburst.domain.job import Job
from starburst.domain.money import Money

HOUR_S, DAY_S = 3600.0, 86_400.0

#: What windows there are.
PERIODS = ("hour", "day", "month")
#: What a cap that is reached does: let runs end, fetch those that lose nothing by it, or stop all.
STEPS = ("finish", "return", "stop")


@dataclass(frozen=True, slots=True)
class Cap:
    """No more than `limit` per window for the jobs of a queue, of a user, of both, or for all jobs."""

    limit: Money
    #: One of PERIODS.
    per: str
    queue: str | None = None
    user: str | None = None
    #: The share of the limit at which people are warned.
    warn_at: float = 0.8
    #: One of STEPS.
    then: str = "stop"

    @property
    def name(self) -> str:
        """Its name in logs and books, the same whatever its limit is: cap/day, cap/month/queue=research."""
        parts = (f"{key}={value}" for key, value in (("queue", self.queue), ("user", self.user)) if value)
        return "/".join(["cap", self.per, *parts])

    @property
    def title(self) -> str:
        """As people read it: the $100.00 per month of queue research."""
        whose = [f"{key} {value}" for key, value in (("user", self.user), ("queue", self.queue)) if value]
        return f"the {self.limit} per {self.per} of {' in '.join(whose) or 'everybody'}"

    def covers(self, job: Job) -> bool:
        """Whether what the job spends counts."""
        return self.queue in (None, job.queue) and self.user in (None, job.user)

    def window(self, at: float) -> tuple[float, float]:
        """Beginning and end of the window that `at` is in; seconds since the epoch."""
        return window(self.per, at)


def window(per: str, at: float) -> tuple[float, float]:
    """The hour, day or month of the UTC calendar that a time is in; seconds since the epoch."""
    if per != "month":
        length_s = HOUR_S if per == "hour" else DAY_S
        start = at // length_s * length_s
        return start, start + length_s
    first = datetime.fromtimestamp(at, timezone.utc).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    later = first.month == 12
    last = first.replace(year=first.year + later, month=1 if later else first.month + 1)
    return first.timestamp(), last.timestamp()


def named_twice(caps: Iterable[Cap]) -> str | None:
    """The name of a second cap on the same spending in the same windows; None if there is none."""
    seen: set[str] = set()
    for cap in caps:
        if cap.name in seen:
            return cap.name
        seen.add(cap.name)
    return None


def utc(at: float) -> str:
    """A time as people read it wherever they are: 2026-11-22 00:00 UTC."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
