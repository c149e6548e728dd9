"""Backoff of a failed job before its next run."""

from __future__ import annotations

FIRST_S, MOST_S = 10.0, 360.0
#: Longest pause where each try rents a machine.
MOST_RENTED_S = 3600.0


def pause_s(failures: int, most_s: float = MOST_S) -> float:
    """Exponential backoff as in Kubernetes' Job controller: 10 s, 20 s, 40 s, …, at most `most_s`.

    Source: Kubernetes documentation, Concepts, Jobs, "Pod backoff failure policy".
    """
    return min(FIRST_S * 2.0 ** min(failures - 1, 10), most_s)
