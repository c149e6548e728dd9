"""When a site that refuses one start after another is asked with one job at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: So many refusals in a row, none longer than FORGET_S after the one before it, and the site is out of order.
IN_A_ROW = 5
#: Seconds between jobs that are tried at a site out of order.
PROBE_S = 10.0
FORGET_S = 600.0


@dataclass(frozen=True, slots=True)
class Refusals:
    """Starts that a site refused since it last started something. Times in scheduler seconds.

    `unit_s`: real seconds in one second of the scheduler's clock (`Settings.unit_s`).
    """

    count: int = 0
    #: The site's words at the last of them.
    message: str = ""
    first_at: float = 0.0
    last_at: float = 0.0
    #: The next job is tried no sooner.
    next_at: float = 0.0

    def refused(self, now: float, message: str, unit_s: float = 1.0) -> Refusals:
        """One more; if the last one is long ago, the first one."""
        if self.count and now - self.last_at < FORGET_S / unit_s:
            return replace(self, count=self.count + 1, message=message, last_at=now)
        return Refusals(1, message, now, now, now + PROBE_S / unit_s)

    def probed(self, now: float, unit_s: float = 1.0) -> Refusals:
        """A job is tried now."""
        return replace(self, next_at=now + PROBE_S / unit_s)

    def shut(self, now: float, unit_s: float = 1.0) -> bool:
        """Whether jobs are to be tried one at a time."""
        return self.count >= IN_A_ROW and now - self.last_at < FORGET_S / unit_s
