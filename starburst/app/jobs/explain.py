"""The word of the core, or of the store, on where a job stands."""

from __future__ import annotations

from collections.abc import Callable

from starburst.app.times import local_clock
from starburst.core.scheduler import Scheduler
from starburst.core.views.explain import Explanation, ended, explain
from starburst.store import queries


def explanation(
    row: queries.JobRow, live_core: Callable[[], Scheduler], sees: Callable[[str], bool] = lambda _: True
) -> Explanation:
    """The live core's word on a job; the store's on one that the core has not met yet, or has forgotten.

    Jobs of queues that the reader does not see have no part in it.
    """
    if row.phase == queries.SUBMITTED:
        return Explanation(row.id, row.phase, "is stored and waits for the scheduler to take it up")
    core = live_core()
    clock = local_clock(core.state.now)
    record = core.state.jobs.get(row.id)
    if record is None:
        sentence = ended(row.phase, row.ended_at, row.message, row.cloud_micro_usd, clock)
        return Explanation(row.id, row.phase, sentence)
    return explain(core.state, record, clock, sees)
