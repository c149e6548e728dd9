"""Leases of machines: until when a machine's runs may go on without news from the scheduler.

A lease names its end twice: on CLOCK_BOOTTIME, which no setting of the wall clock moves and which counts
while the machine sleeps, with the id of the boot that this clock belongs to; and as epoch seconds, which
decide only after the machine was booted again.
"""

from __future__ import annotations

import math
import time
from typing import Any

#: Seconds at most between SIGTERM and SIGKILL for a run whose machine's lease has passed.
LEASE_GRACE_S = 60.0


def boottime() -> float:
    """Seconds since the machine booted, independent of the wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The id of this boot; values of `boottime` compare within one boot only."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def new_lease(lease_s: float) -> dict[str, Any]:
    """A lease of `lease_s` seconds from now, on both clocks."""
    return {"until": time.time() + lease_s, "boot": boot_id(), "until_boottime": boottime() + lease_s}


def lease_left_s(lease: Any) -> float:
    """Seconds until a lease passes; negative once it has, -inf for anything that is no lease."""
    try:
        if lease.get("boot") == boot_id():
            left_s = float(lease["until_boottime"]) - boottime()
        else:
            left_s = float(lease["until"]) - time.time()
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return -math.inf
    return left_s if math.isfinite(left_s) else -math.inf
