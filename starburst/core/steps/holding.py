"""Holding a job that waits, and releasing it."""

from __future__ import annotations

from starburst.core.model.events import HoldRequested, ReleaseRequested
from starburst.core.state import State
from starburst.core.steps.admission import admit, withdraw
from starburst.domain.job import Phase

#: Phases in which a job can still be held.
HOLDABLE = (Phase.BLOCKED, Phase.QUEUED)


def hold_requested(state: State, event: HoldRequested) -> None:
    """A job that waits waits no longer; one that has a place already goes on."""
    record = state.jobs.get(event.job_id)
    if record is None or record.held or record.phase.is_end:
        return
    if record.phase not in HOLDABLE:
        state.decide(record.id, "not-held", phase=record.phase.value)
        return
    withdraw(state, record)
    record.held = True
    admit(state, record)


def release_requested(state: State, event: ReleaseRequested) -> None:
    """A held job waits again, for as long as if it came just now."""
    record = state.jobs.get(event.job_id)
    if record is None or not record.held or record.phase.is_end:
        return
    record.held = False
    state.decide(record.id, "released", held_s=state.now - record.queued_at)
    admit(state, record)
