"""Iterable sets of small integers: row 0 holds the members, row 1 the position of each member.

Column 0 of row 0 is the size; position 0 means that the integer is not a member.
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
    """Whether the item is a member."""
    return bool(members[1, item] > 0)


@compiled
def add(members: Ints, item: int) -> None:
    """Add an item if it is not a member."""
    if members[1, item] == 0:
        members[0, 0] += 1
        members[0, members[0, 0]] = item
        members[1, item] = members[0, 0]


@compiled
def discard(members: Ints, item: int) -> None:
    """Remove an item if it is a member; the last member takes its position."""
    spot = members[1, item]
    if spot:
        last = members[0, members[0, 0]]
        members[0, spot] = last
        members[1, last] = spot
        members[1, item] = 0
        members[0, 0] -= 1


@compiled
def clear(members: Ints) -> None:
    """Remove all members."""
    for spot in range(1, members[0, 0] + 1):
        members[1, members[0, spot]] = 0
    members[0, 0] = 0
