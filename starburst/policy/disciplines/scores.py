"""Scalar sizes of multi-resource demands, for disciplines with one resource (section VIII)."""

from __future__ import annotations

from collections.abc import Sequence


def largest_share(demand: Sequence[int], capacity: Sequence[int], units: int) -> int:
    """The largest of the shares demand/capacity, in `units` per server, rounded up and at least 1.

    Jobs that fit by this size fit in every resource. A resource with demand must have a positive capacity.
    """
    shares = [-(-wanted * units // there) for wanted, there in zip(demand, capacity, strict=True) if wanted]
    return max(shares, default=1)


def alignment(demand: Sequence[int], amounts: Sequence[int], capacity: Sequence[int]) -> float:
    """Inner product of a job's demand and a server's amounts, as shares of its capacity; the largest is best.

    Tetris (SIGCOMM'14) uses the free amounts, section VIII the occupied ones.
    """
    return sum(
        wanted * amount / (there * there)
        for wanted, amount, there in zip(demand, amounts, capacity, strict=True)
        if there
    )
