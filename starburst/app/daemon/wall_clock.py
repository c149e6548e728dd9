"""The wall's clock as this process found it, carried on by the machine's own: setting it moves nothing."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_wall() -> Callable[[], float]:
    """Epoch seconds from now on. A clock that is set meanwhile is believed at the next start, not before:
    else whatever runs would have run, waited and cost as long as the clock was moved by.
    """
    origin = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: origin + time.clock_gettime(time.CLOCK_BOOTTIME)
