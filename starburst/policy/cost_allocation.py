"""Who pays for a shared machine: moment by moment those who have it, by their largest share of it.

So what was charged is never taken back, it grows evenly as long as nobody comes or goes, and what falls into
a window of time does not depend on what happens after it: caps on spending need all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf


@dataclass(frozen=True, slots=True)
class Use:
    """A job had a share of a machine, the largest over GPUs, CPUs and memory; scheduler seconds."""

    job_id: str
    share: float
    since: float
    until: float = inf


def divide(uses: Sequence[Use], since: float, until: float) -> dict[str, float]:
    """The seconds from `since` to `until` as they fall to each job; they add up.

    Who has it bears what nobody has of it. While nobody has any of it, those bear it who left it last, or,
    before anybody came, who came first.
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
