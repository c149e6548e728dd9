"""Reports that no decision follows directly; later ones use what they say.

The progress of runs, whose remaining time replaces the estimate; and of machines which images they have, and
whether they keep jobs apart.
"""

from __future__ import annotations

from math import inf, isfinite

from starburst.core.model.events import ImagesReported, JobsNotKeptApart, Progress
from starburst.core.state import State
from starburst.core.steps.interference import observe, teaches
from starburst.domain.job import Phase, Site

#: Longest remaining time that is accepted from a report, seconds (ten years).
MOST_S = 3650 * 86_400.0
#: A report is skipped if it moves the end by less than this share of the remaining time, or fewer seconds.
SHARE, LEAST_S = 0.1, 10.0


def progressed(state: State, event: Progress) -> None:
    """Store the end that a running attempt reports, and learn interference from its rate.

    No decision follows directly; later decisions use the new end.
    """
    record, left_s = state.current(event.job_id, event.attempt), _left_s(state, event)
    if record is None or record.phase is not Phase.RUNNING or not _is_sane(event):
        state.ignore(event, "no running attempt, or numbers that cannot be")
        return
    observe(state, record, event.per_s)
    if left_s is None:
        return
    record.ends_at = state.now + left_s
    state.touch(record)
    state.meter.runs(record, record.ends_at)
    if record.site is Site.CLUSTER:
        state.forecast.expect(record.id, record.ends_at)
        if state.prospects is not None:
            state.prospects.began(record.slots)


def not_kept_apart(state: State, event: JobsNotKeptApart) -> None:
    """Record whether an instance keeps its jobs apart; the start of each says so."""
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None or instance.together == event.why:
        state.ignore(event, "no such machine, or that is known")
        return
    instance.together = event.why
    state.touch_instance(instance)


def images_reported(state: State, event: ImagesReported) -> None:
    """Record the images of an instance, and learn from the pulls that are new."""
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None:
        state.ignore(event, "no such machine, or it has ended")
        return
    known = instance.images or ()
    for image, seconds in event.images:
        if seconds is not None and image not in known:
            state.fleet.speeds.pulls.observe(image, seconds)
            state.changes.speeds = state.fleet.speeds.snapshot()
    instance.images = tuple(sorted({image for image, _ in event.images}))
    state.touch_instance(instance)


def is_news(state: State, event: Progress, now: float) -> bool:
    """Whether a report is worth a step: it moves the expected end enough, or its rate is used (`teaches`)."""
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
    """Remaining seconds; None if the report gives no total or has impossible values."""
    if event.total is None or not _is_sane(event):
        return None
    left_s = (event.total - event.done) / event.per_s
    return left_s if left_s <= state.settings.clock_s(MOST_S) else None


def _is_sane(event: Progress) -> bool:
    """Whether the values are possible: finite, 0 ≤ done ≤ total, rate > 0."""
    total = event.done if event.total is None else event.total
    finite = isfinite(event.done) and isfinite(total) and isfinite(event.per_s)
    return finite and 0 <= event.done <= total and event.per_s > 0
