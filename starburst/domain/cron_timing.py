"""When the jobs of a CronJob are submitted, and what becomes of a tick while an earlier job has not ended."""

from __future__ import annotations

from enum import Enum

from starburst.domain.cron_schedule import CronSchedule
from starburst.domain.value import value


class Concurrency(str, Enum):
    """`concurrencyPolicy` of a CronJob: what a tick does while jobs of earlier ticks have not ended."""

    ALLOW = "Allow"
    #: The tick waits, for as long as its starting deadline permits and no other has come.
    FORBID = "Forbid"
    #: They are cancelled, and the new job starts when they have ended.
    REPLACE = "Replace"


@value
class CronTiming:
    """What a CronJob says about times."""

    schedule: CronSchedule
    concurrency: Concurrency = Concurrency.ALLOW
    #: Seconds after a tick in which its job may still be submitted; None is any time.
    starting_deadline_s: float | None = None
    suspended: bool = False

    def due(self, since: float, now: float, created_at: float) -> float | None:
        """The tick whose job is to be submitted: the last one after `since`, if its deadline has not passed.

        Earlier ticks that were missed are left out, as by Kubernetes' controller. Times are instants.
        """
        if self.suspended:
            return None
        if self.starting_deadline_s is not None:
            since = max(since, now - self.starting_deadline_s)
        return self.schedule.last(since, now, created_at)

    def next(self, now: float, created_at: float) -> float | None:
        """The next tick; None while suspended."""
        return None if self.suspended else next(self.schedule.after(now, created_at), None)
