"""Time as data: the scheduler's clock, which may run faster than the wall's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Maps wall time to scheduler time: equal at `origin`, then `speed` times as fast (epoch seconds)."""

    origin: float = 0.0
    speed: float = 1.0

    def scheduler_time(self, wall: float) -> float:
        """Scheduler time at a wall time."""
        return self.origin + (wall - self.origin) * self.speed

    def wall_time(self, at: float) -> float:
        """Wall time at a scheduler time."""
        return self.origin + (at - self.origin) / self.speed
