"""Backoff of a failed job before its next run."""

from __future__ import annotations

FIRST_S, MOST_S = 10.0, 360.0


def pause_s(failures: int) -> float:
    """Exponential backoff as in Kubernetes' Job controller: 10 s, 20 s, 40 s, …, at most 360 s.

    Source: Kubernetes documentation, Concepts, Jobs, "Pod backoff failure policy".
    """
    return min(FIRST_S * 2.0 ** min(failures - 1, 10), MOST_S)
