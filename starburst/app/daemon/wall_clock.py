"""A wall clock that is read once and then advanced by the boot-time clock: setting it has no effect."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_wall() -> Callable[[], float]:
    """A function that returns epoch seconds. A change of the system's clock takes effect at the next start:
    otherwise it would add to the run times, waits and costs of all present jobs. Time in suspend counts.
    """
    origin = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: origin + time.clock_gettime(time.CLOCK_BOOTTIME)
