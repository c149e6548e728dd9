"""Values of caps on spending: what is kept of a cap, how it stands now, what a job lacks under it.

Amounts are micro-dollars as floats, since they accrue with time; times are scheduler seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from starburst.policy.caps import Cap

#: Micro-dollars by which a sum may miss its mark: times are binary fractions.
SLACK = 1.0


@dataclass(frozen=True, slots=True)
class CapLedger:
    """What is kept of a cap: the window that this is about, and the micro-dollars of machines that ended."""

    start: float
    settled: float = 0.0
    warned: bool = False
    reached: bool = False


@dataclass(frozen=True, slots=True)
class CapStatus:
    """How a cap stands in the present window; micro-dollars, and micro-dollars per hour."""

    cap: Cap
    ledger: CapLedger
    end: float
    #: Settled and accrued.
    spent: float
    reserved: float
    rate: float

    @property
    def left(self) -> float:
        """What neither is spent nor set aside."""
        return max(0.0, self.cap.limit.micro_usd - self.spent - self.reserved)

    @property
    def warns(self) -> bool:
        """Whether so much is spent that people should know."""
        return self.spent >= self.cap.warn_at * self.cap.limit.micro_usd - SLACK

    @property
    def is_reached(self) -> bool:
        """Whether all is spent."""
        return self.spent >= self.cap.limit.micro_usd - SLACK

    def has(self, cost: float) -> bool:
        """Whether something that costs so many micro-dollars may still be begun."""
        return cost <= 0 or (not self.is_reached and cost <= self.left + SLACK)

    @property
    def next_mark(self) -> float:
        """The next amount of spending at which something is to be done; infinity if there is none."""
        if self.is_reached:
            return inf
        limit = float(self.cap.limit.micro_usd)
        return limit if self.ledger.warned else min(limit, self.cap.warn_at * limit)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What keeps a job from leaving: its cost in the window of a cap, and what is left; micro-dollars."""

    standing: CapStatus
    cost: float
    left: float
