"""Cost allocation of a shared instance: each moment is charged to the jobs on it by their shares.

A job's share is its largest over GPUs, CPUs and memory. The allocation has three properties that spending
caps need: an amount once charged never changes, charges grow linearly while the set of jobs is unchanged, and
the charge within a time window does not depend on later events.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

from starburst.domain.value import value


@value
class Use:
    """A job's share of an instance (the largest over GPUs, CPUs and memory); times in scheduler seconds."""

    job_id: str
    share: float
    since: float
    until: float = inf


def divide(uses: Sequence[Use], since: float, until: float) -> dict[str, float]:
    """The seconds from `since` to `until`, divided among the jobs; the parts add up to the whole.

    Unused shares are charged to the jobs present, in proportion to their own shares. Time without any job is
    charged likewise to the jobs that ended last before it or, before the first job, to those that started
    first.
    """
    seconds: dict[str, float] = {}
    if until <= since:
        return seconds
    near = [use for use in uses if use.since < until and use.until > since]
    cuts = {at for use in near for at in (use.since, use.until) if since < at < until}
    for left, right in pairwise(sorted({since, until, *cuts})):
        there = [use for use in near if use.since <= left < use.until] or _nearest(uses, left)
        whole = sum(use.share for use in there)
        for use in there:
            part = use.share / whole if whole else 1 / len(there)
            seconds[use.job_id] = seconds.get(use.job_id, 0.0) + part * (right - left)
    return seconds


def _nearest(uses: Sequence[Use], at: float) -> list[Use]:
    left_at = max((use.until for use in uses if use.until <= at), default=None)
    if left_at is not None:
        return [use for use in uses if use.until == left_at]
    came_at = min((use.since for use in uses), default=inf)
    return [use for use in uses if use.since == came_at]
