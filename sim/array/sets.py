"""Sets of small numbers that can be walked over: row 0 holds the members, row 1 where each of them stands.

Column 0 of row 0 is their count; a number stands nowhere (0) while it is out.
"""

from __future__ import annotations

import numpy as np

from sim.array.compiled import compiled
from sim.trace import Ints


def empty(size: int) -> Ints:
    """A set of numbers below `size`."""
    return np.zeros((2, size + 1), np.int64)


@compiled
def has(members: Ints, item: int) -> bool:
    """Whether it is in."""
    return bool(members[1, item] > 0)


@compiled
def add(members: Ints, item: int) -> None:
    """Put it in, if it is not."""
    if members[1, item] == 0:
        members[0, 0] += 1
        members[0, members[0, 0]] = item
        members[1, item] = members[0, 0]


@compiled
def discard(members: Ints, item: int) -> None:
    """Take it out, if it is in; the last one takes its place."""
    spot = members[1, item]
    if spot:
        last = members[0, members[0, 0]]
        members[0, spot] = last
        members[1, last] = spot
        members[1, item] = 0
        members[0, 0] -= 1


@compiled
def clear(members: Ints) -> None:
    """Take all out."""
    for spot in range(1, members[0, 0] + 1):
        members[1, members[0, spot]] = 0
    members[0, 0] = 0
