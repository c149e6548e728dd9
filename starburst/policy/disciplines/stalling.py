"""When a server that never empties by chance should take no more jobs until it has (section VIII).

The guarantees need servers to become empty now and then. Geometric service times see to that; under others
a server that works inefficiently is stalled.
"""

from __future__ import annotations


def half_empty(free: int, capacity: int) -> bool:
    """BF-J/S: the server is less than half full."""
    return 2 * free > capacity


def far_from_best(weight: int, best: int, share: float) -> bool:
    """VQS and VQS-BF: the weight of the configuration is below this share of the largest there is."""
    return weight < share * best
