"""The windows of caps as the scheduler sees them, whose clock may be wrong and set right."""

from __future__ import annotations

from collections.abc import Mapping

#: Seconds.
LENGTHS: Mapping[str, float] = {"hour": 3600.0, "day": 86_400.0}


class Windows:
    """When, by the world's clock, the scheduler came to the window in which it is."""

    def __init__(self) -> None:
        #: By what a cap is `per`.
        self.began_at: dict[str, float] = {}
        self._inside: dict[str, float] = {}
        self._stepped_at = 0.0

    def stepped(self, scheduler_now: float, now: float) -> None:
        """Take in a step: its time by the scheduler's clock and by the world's."""
        for per, length_s in LENGTHS.items():
            into_s = scheduler_now % length_s
            if self._inside.get(per) != scheduler_now - into_s:
                # Not before its last step in another one: since then its clock may have been set.
                self._inside[per] = scheduler_now - into_s
                self.began_at[per] = max(now - into_s, self._stepped_at)
        self._stepped_at = now
