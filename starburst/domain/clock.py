"""The scheduler's clock, which may run faster than wall time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Maps wall time to scheduler time: `start` at wall time `origin`, then `speed` times as fast."""

    origin: float = 0.0
    speed: float = 1.0
    #: Scheduler time at `origin`; None means equal to `origin`.
    start: float | None = None

    def scheduler_time(self, wall: float) -> float:
        """Scheduler time at a wall time, seconds; with the defaults both are seconds since the epoch."""
        return self._start + (wall - self.origin) * self.speed

    def wall_time(self, at: float) -> float:
        """Wall time at a scheduler time."""
        return self.origin + (at - self._start) / self.speed

    def with_speed(self, speed: float, wall: float) -> Pace:
        """The same clock with another speed from `wall` on; continuous at `wall`."""
        return Pace(wall, speed, self.scheduler_time(wall))

    @property
    def _start(self) -> float:
        return self.origin if self.start is None else self.start
