"""Jobs that come after others: they wait for a place when those are over, or end when they never will run."""

from __future__ import annotations

from starburst.core.state import State
from starburst.core.steps.admission import admit
from starburst.core.steps.run_lifecycle import finish
from starburst.domain.job import Phase


def free(state: State) -> None:
    """Look at those that await nothing any more, or in vain; one that ends may doom others."""
    while state.freed:
        record = state.jobs.get(state.freed.popleft())
        if record is None or record.phase not in (Phase.BLOCKED, Phase.HELD):
            continue
        if record.doomed_by:
            finish(state, record, Phase.CANCELLED, "cancelled", other=record.doomed_by)
        elif record.phase is Phase.BLOCKED:
            admit(state, record)
