"""What a run says of itself takes the place of what was estimated of it."""

from __future__ import annotations

from math import inf, isfinite

from starburst.core.model.events import Progress
from starburst.core.state import State
from starburst.core.steps.interference import observe, teaches
from starburst.domain.job import Phase, Site

#: Who says that he will run longer is not believed.
MOST_S = 3650 * 86_400.0
#: An end that moves by less than this share of what is left, or by fewer seconds, is no news.
SHARE, LEAST_S = 0.1, 10.0


def progressed(state: State, event: Progress) -> None:
    """An attempt says how far it is. Nothing is decided for that; whoever asks next has a better estimate."""
    record, left_s = state.current(event.job_id, event.attempt), _left_s(state, event)
    if record is None or record.phase is not Phase.RUNNING or not _is_sane(event):
        state.ignore(event, "no running attempt, or numbers that cannot be")
        return
    observe(state, record, event.per_s)
    if left_s is None:
        return
    record.ends_at = state.now + left_s
    state.touch(record)
    if state.prospects is not None and record.site is Site.CLUSTER:
        state.prospects.began(record.slots)


def is_news(state: State, event: Progress, now: float) -> bool:
    """Whether it is worth a step: it would change by when its run is expected to end, or tells us something
    about those who run beside it."""
    record, left_s = state.current(event.job_id, event.attempt), _left_s(state, event)
    if record is None or record.phase is not Phase.RUNNING or not _is_sane(event):
        return False
    if teaches(state, record, now):
        return True
    if left_s is None:
        return False
    moved_s = inf if record.ends_at is None else abs(now + left_s - record.ends_at)
    return moved_s > max(state.settings.clock_s(LEAST_S), SHARE * left_s)


def _left_s(state: State, event: Progress) -> float | None:
    """Seconds to go; None if it does not say, or says what cannot be."""
    if event.total is None or not _is_sane(event):
        return None
    left_s = (event.total - event.done) / event.per_s
    return left_s if left_s <= state.settings.clock_s(MOST_S) else None


def _is_sane(event: Progress) -> bool:
    """Whether these are numbers that can be."""
    total = event.done if event.total is None else event.total
    finite = isfinite(event.done) and isfinite(total) and isfinite(event.per_s)
    return finite and 0 <= event.done <= total and event.per_s > 0
