"""Stalling: a server that is used inefficiently takes no more jobs until it is empty (section VIII).

The throughput guarantees need servers to become empty now and then. Geometric service times ensure that; for
other distributions inefficient servers are stalled.
"""

from __future__ import annotations


def half_empty(free: int, capacity: int) -> bool:
    """BF-J/S: the server is less than half full."""
    return 2 * free > capacity


def far_from_best(weight: int, best: int, share: float) -> bool:
    """VQS and VQS-BF: the configuration's weight is below this share of the largest weight."""
    return weight < share * best
