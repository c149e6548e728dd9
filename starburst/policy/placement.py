"""Which node a task goes to. A score is computed for every node that holds the task; the smallest wins.

Free amounts and demands are triples (GPUs, milli-CPUs, MiB); ties go to the node that comes first.
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
    return -sum(d * f / (c * c) for f, c, d in zip(free, capacity, demand, strict=True) if c)


PLACEMENTS: dict[str, Score] = {
    "first-fit": first_fit,
    "best-fit": best_fit,
    "worst-fit": worst_fit,
    "tetris": tetris,
}
