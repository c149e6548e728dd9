"""The windows of caps, as far as the scheduler's clock is right in them."""

from __future__ import annotations

from collections.abc import Mapping

#: Seconds.
LENGTHS: Mapping[str, float] = {"hour": 3600.0, "day": 86_400.0}
#: By how much the scheduler's clock may be wrong, seconds.
RIGHT_S = 60.0


class Windows:
    """Which windows can be judged: a wrong clock opens them at other times (`docs/dollars.md`)."""

    def __init__(self) -> None:
        #: When, by the world's clock, a step was last made with a wrong one.
        self._wrong_at = 0.0

    def stepped(self, scheduler_now: float, now: float) -> None:
        """Take in a step: its time by the scheduler's clock and by the world's."""
        if abs(scheduler_now - now) > RIGHT_S:
            self._wrong_at = now

    def began_at(self, per: str, now: float) -> float | None:
        """When the present window began; None if the scheduler's clock has been wrong since, or may say that
        the next one has begun.
        """
        began = now - now % LENGTHS[per]
        return began if self._wrong_at < began and now + RIGHT_S < began + LENGTHS[per] else None
