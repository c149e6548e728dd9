"""How long a job that failed pauses before its next try."""

from __future__ import annotations

FIRST_S, MOST_S = 10.0, 360.0


def pause_s(failures: int) -> float:
    """10 s, 20 s, 40 s, … and never more than six minutes, as Kubernetes' Job controller pauses.

    Source: Kubernetes documentation, Concepts, Jobs, "Pod backoff failure policy".
    """
    return min(FIRST_S * 2.0 ** min(failures - 1, 10), MOST_S)
