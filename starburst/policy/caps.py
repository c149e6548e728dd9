"""Caps on spending: the jobs that a cap covers and the UTC calendar window in which their cost is counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from starburst.domain.job import Job
from starburst.domain.money import Money

HOUR_S, DAY_S, WEEK_S = 3600.0, 86_400.0, 604_800.0
#: Length of a window and the start of one, seconds since the epoch: 5 January 1970 was a Monday.
_WINDOWS = {"hour": (HOUR_S, 0.0), "day": (DAY_S, 0.0), "week": (WEEK_S, 4 * DAY_S)}

#: Lengths of a cap's window.
PERIODS = ("hour", "day", "week", "month")
#: Effect of a reached cap on runs: let them finish, return those that lose no work by it, or stop all.
STEPS = ("finish", "return", "stop")


@dataclass(frozen=True, slots=True)
class Cap:
    """A limit on the spending per window of a queue's jobs, a user's jobs, the jobs of both, or all jobs."""

    limit: Money
    #: One of PERIODS.
    per: str
    queue: str | None = None
    user: str | None = None
    #: Share of the limit at which a warning is issued.
    warn_at: float = 0.8
    #: One of STEPS.
    then: str = "stop"

    @property
    def name(self) -> str:
        """Name in logs and ledgers, independent of the limit: cap/day, cap/month/queue=research."""
        parts = (f"{key}={value}" for key, value in (("queue", self.queue), ("user", self.user)) if value)
        return "/".join(["cap", self.per, *parts])

    @property
    def title(self) -> str:
        """Name in messages: the $100.00 per month of queue research."""
        whose = [f"{key} {value}" for key, value in (("user", self.user), ("queue", self.queue)) if value]
        return f"the {self.limit} per {self.per} of {' in '.join(whose) or 'all jobs'}"

    def covers(self, job: Job) -> bool:
        """Whether the job's cost counts against this cap."""
        return self.queue in (None, job.queue) and self.user in (None, job.user)

    def window(self, at: float) -> tuple[float, float]:
        """Start and end of the window that contains `at`; seconds since the epoch."""
        return window(self.per, at)


def window(per: str, at: float) -> tuple[float, float]:
    """Start and end, seconds since the epoch, of the UTC hour, day, week or month that contains `at`."""
    if per in _WINDOWS:
        length_s, first_s = _WINDOWS[per]
        start = (at - first_s) // length_s * length_s + first_s
        return start, start + length_s
    first = datetime.fromtimestamp(at, timezone.utc).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    later = first.month == 12
    last = first.replace(year=first.year + later, month=1 if later else first.month + 1)
    return first.timestamp(), last.timestamp()


def named_twice(caps: Iterable[Cap]) -> str | None:
    """The first name shared by two caps (same period, queue and user); None if all names differ."""
    seen: set[str] = set()
    for cap in caps:
        if cap.name in seen:
            return cap.name
        seen.add(cap.name)
    return None


def utc(at: float) -> str:
    """A time formatted in UTC: 2026-11-22 00:00 UTC."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
