"""A wall clock that is read once and then advanced by the boot-time clock: setting it has no effect."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_wall(least: float = 0.0) -> Callable[[], float]:
    """A function that returns epoch seconds. A change of the system's clock takes effect at the next start:
    otherwise it would add to the run times, waits and costs of all present jobs. Time in suspend counts.

    `least`: the time that was reached before. If the clock is behind it, as it was put back, time goes on
    from there at half its pace until the clock has caught up: nothing that waits for a time stands still.
    """
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    origin = time.time() - began

    def wall() -> float:
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        return max(origin + at, least + (at - began) / 2)

    return wall


def scheduler_clock(now: Callable[[], float], speed: float) -> Callable[[float], float]:
    """A function from a past time of the system's clock, epoch seconds, to scheduler seconds.

    `now` is the scheduler's time, which passes `speed` times as fast. How long ago it was counts, for `now`
    does not follow the system's clock when that is set.
    """
    return lambda at: now() - (time.time() - at) * speed
