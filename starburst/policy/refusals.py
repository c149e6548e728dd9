"""Circuit breaker for a site that refuses several starts in a row: it is probed with one job at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: A site is out of order after IN_A_ROW refusals, each less than FORGET_S seconds after the one before it.
IN_A_ROW = 5
#: Seconds between the jobs with which an out-of-order site is probed.
PROBE_S = 10.0
FORGET_S = 600.0


@dataclass(frozen=True, slots=True)
class Refusals:
    """Starts that a site refused since its last successful start. Times in scheduler seconds.

    `unit_s`: real seconds in one second of the scheduler's clock (`Settings.unit_s`).
    """

    count: int = 0
    #: The site's message with the latest refusal.
    message: str = ""
    first_at: float = 0.0
    last_at: float = 0.0
    #: The next probe takes place no sooner.
    next_at: float = 0.0

    def refused(self, now: float, message: str, unit_s: float = 1.0) -> Refusals:
        """Count one more refusal; the count restarts at 1 if the previous one is FORGET_S or more ago."""
        if self.count and now < self.forgotten_at(unit_s):
            return replace(self, count=self.count + 1, message=message, last_at=now)
        return Refusals(1, message, now, now, now + PROBE_S / unit_s)

    def probed(self, now: float, unit_s: float = 1.0) -> Refusals:
        """A job is started as a probe now; the next one may follow after PROBE_S."""
        return replace(self, next_at=now + PROBE_S / unit_s)

    def shut(self, now: float, unit_s: float = 1.0) -> bool:
        """Whether the site is out of order, so that jobs are started one at a time."""
        return self.count >= IN_A_ROW and now < self.forgotten_at(unit_s)

    def forgotten_at(self, unit_s: float = 1.0) -> float:
        """When the latest refusal is so long past that the count is over."""
        return self.last_at + FORGET_S / unit_s
