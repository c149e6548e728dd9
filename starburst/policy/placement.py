"""Choice of a node for a task: each node that holds the task gets a score, and the smallest score wins.

Free amounts and demands are triples (GPUs, milli-CPUs, MiB); ties go to the first node. The functions use
plain arithmetic on triples because the simulator compiles them with Numba.
"""

from __future__ import annotations

from collections.abc import Callable

Amount = tuple[int, int, int]
#: score(free, capacity, demand)
Score = Callable[[Amount, Amount, Amount], float | tuple[float, ...]]


def first_fit(free: Amount, capacity: Amount, demand: Amount) -> float:
    """The first node that holds the task."""
    return 0.0


def best_fit(free: Amount, capacity: Amount, demand: Amount) -> tuple[float, ...]:
    """The fullest node: fewest free GPUs, then CPUs, then memory."""
    return free


def worst_fit(free: Amount, capacity: Amount, demand: Amount) -> tuple[float, ...]:
    """The emptiest node: most free GPUs, then CPUs, then memory."""
    return (-free[0], -free[1], -free[2])


def tetris(free: Amount, capacity: Amount, demand: Amount) -> float:
    """The best alignment: Σ demand/capacity · free/capacity, largest first (Tetris, SIGCOMM'14)."""
    alignment = 0.0
    for kind in range(3):
        size = float(capacity[kind])
        if size:
            alignment += float(demand[kind]) * float(free[kind]) / (size * size)
    return -alignment


PLACEMENTS: dict[str, Score] = {
    "first-fit": first_fit,
    "best-fit": best_fit,
    "worst-fit": worst_fit,
    "tetris": tetris,
}
