"""One number for a demand on several resources, for disciplines that know only one (section VIII)."""

from __future__ import annotations

from collections.abc import Sequence


def largest_share(demand: Sequence[int], capacity: Sequence[int], units: int) -> int:
    """The largest of the shares demand/capacity, in `units` per server, rounded up and at least 1.

    Jobs that fit by this size fit in every resource. Nothing may be asked for that the servers do not have.
    """
    shares = [-(-wanted * units // there) for wanted, there in zip(demand, capacity, strict=True) if wanted]
    return max(shares, default=1)


def alignment(demand: Sequence[int], amounts: Sequence[int], capacity: Sequence[int]) -> float:
    """Inner product of a job's demand and a server's amounts, as shares of its capacity; the largest is best.

    Tetris (SIGCOMM'14) takes the amounts that are free, section VIII those that are occupied.
    """
    return sum(
        wanted * amount / (there * there)
        for wanted, amount, there in zip(demand, amounts, capacity, strict=True)
        if there
    )
