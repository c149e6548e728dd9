"""The core's word on one job, for pages that stay open: it is not read anew for each look."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Lock

from starburst.app.jobs.explain import explanation
from starburst.app.wiring.stored import live_core
from starburst.core.scheduler import Scheduler
from starburst.core.views.explain import Explanation
from starburst.store.queries import DecisionRow, JobRow
from starburst.web.context import AppContext

#: Wall seconds for which a core is asked about jobs on which nothing was decided since. Reading one takes a
#: third of a second while 10,000 jobs wait; what may be old so long is a job's place in the line.
STALE_S = 5.0


class Teller:
    """Knows the scheduler's state as of late. One asks at a time."""

    def __init__(self, app_context: AppContext) -> None:
        self._app_context = app_context
        self._lock = Lock()
        self._core: Scheduler | None = None
        self._read_at = 0.0

    def tell(self, row: JobRow, story: Sequence[DecisionRow]) -> Explanation:
        """Where the job stands; never behind its own decisions."""
        with self._lock:
            return explanation(row, lambda: self._at_least(story[-1].seq if story else 0))

    def _at_least(self, decided: int) -> Scheduler:
        at, core = time.monotonic(), self._core
        if core is None or core.decided < decided or at - self._read_at > STALE_S:
            core = self._core = live_core(self._app_context.store)
            self._read_at = at
        core.now = max(core.now, self._app_context.now())
        return core
