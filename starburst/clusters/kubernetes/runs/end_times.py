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

    They are of the clocks of their nodes, which can be off by seconds and more, while a watch tells of an end
    within seconds. So what a watch tells of at once has ended now. Only an end that is at least a minute old by
    the scheduler's clock, since Starburst or the API server was away, is believed to have been then.
    """

    #: Epoch seconds.
    clock: Callable[[], float] = time.time
    #: Scheduler seconds at a past time in epoch seconds.
    scheduler_time: Callable[[float], float] = float

    def told(self, at: float | None) -> float | None:
        """The end that is reported for one at `at`, epoch seconds: in scheduler seconds, or None for now."""
        late = at is not None and self.clock() - at >= LATE_S
        return self.scheduler_time(at) if at is not None and late else None
