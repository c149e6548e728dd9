"""When a run ended, as its pods say, if that is long ago."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

#: Wall seconds. An end that is younger counts as now.
LATE_S = 60.0


@dataclass(frozen=True, slots=True)
class EndTimes:
    """Judges the times that pods and Jobs give for their ends.

    They are by the clocks of their nodes, which can be off, while a watch tells of an end within seconds. So
    an end counts as now (None), which is exact then, unless it is at least a minute old by the scheduler's
    clock, as after a time in which Starburst or the API server was away.
    """

    #: Epoch seconds.
    clock: Callable[[], float] = time.time
    #: Scheduler seconds at a past time in epoch seconds.
    scheduler_time: Callable[[float], float] = float

    def told(self, at: float | None) -> float | None:
        """The end that is reported for one at `at`, epoch seconds: in scheduler seconds, or None for now."""
        late = at is not None and self.clock() - at >= LATE_S
        return self.scheduler_time(at) if at is not None and late else None
