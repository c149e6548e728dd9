"""Prediction of a job's wait for the cluster from the state of the queue, by estimates of run times.

The job starts when enough of what now runs has ended to make room for it, and when the cluster has worked off
the jobs ahead of it. The sum of both is too long for a small job, which may pass the jobs ahead of it, and
too short where room is scattered over nodes.
"""

from __future__ import annotations

from collections.abc import Iterable


def predicted_wait_s(
    need: float, free: float, ends: Iterable[tuple[float, float]], ahead_s: float, capacity: float
) -> float:
    """Predicted seconds until a job starts that asks for `need`; all sizes are in one unit, such as GPUs.

    `free`: what is free now; `ends`: (seconds from now, size) of each run, the earliest first; `ahead_s`: Σ
    size · run time of the jobs ahead of it, unit·seconds; `capacity`: what the nodes have in all.
    """
    own_s = 0.0
    for end_s, size in ends:
        if free >= need:
            break
        free += size
        own_s = max(end_s, 0.0)
    return own_s + (ahead_s / capacity if capacity > 0 else 0.0)
