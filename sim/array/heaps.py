"""Binary heaps of job or group indices in plain arrays.

Entry 0 is the size; `key` gives the sort key of an entry and must not change while the entry is in the heap.
"""

from __future__ import annotations

from sim.array.compiled import compiled
from sim.trace import Bools, Floats, Ints

Keys = Floats | Ints


@compiled
def push(heap: Ints, key: Keys, item: int) -> None:
    """Add an entry."""
    heap[0] += 1
    spot = heap[0]
    while spot > 1 and key[item] < key[heap[spot >> 1]]:
        heap[spot] = heap[spot >> 1]
        spot >>= 1
    heap[spot] = item


@compiled
def pop(heap: Ints, key: Keys) -> int:
    """Remove and return the smallest entry."""
    smallest = heap[1]
    last = heap[heap[0]]
    heap[0] -= 1
    if heap[0]:
        _sink(heap, key, 1, last)
    return int(smallest)


@compiled
def _sink(heap: Ints, key: Keys, spot: int, item: int) -> None:
    """Insert an item at a free position or below it."""
    while 2 * spot <= heap[0]:
        child = 2 * spot
        if child < heap[0] and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[item] <= key[heap[child]]:
            break
        heap[spot] = heap[child]
        spot = child
    heap[spot] = item


@compiled
def prune(heap: Ints, key: Keys, valid: Bools) -> None:
    """Remove invalid entries from the top."""
    while heap[0] and not valid[heap[1]]:
        pop(heap, key)


@compiled
def sweep(heap: Ints, key: Keys, valid: Bools, count: int) -> None:
    """Remove all invalid entries once they outnumber the `count` valid ones; amortised O(1) per entry."""
    if heap[0] <= 64 or heap[0] <= 2 * count:
        return
    size = 0
    for spot in range(1, heap[0] + 1):
        if valid[heap[spot]]:
            size += 1
            heap[size] = heap[spot]
    heap[0] = size
    for spot in range(size >> 1, 0, -1):
        _sink(heap, key, spot, heap[spot])
