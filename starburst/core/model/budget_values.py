"""Values of caps: the stored ledger, the present status, and a job's shortfall.

Amounts are micro-dollars as floats, since they accrue with time; times are scheduler seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from starburst.policy.caps import Cap

#: Tolerance of comparisons, micro-dollars: times are binary fractions.
SLACK = 1.0


@dataclass(frozen=True, slots=True)
class CapLedger:
    """The stored part of a cap: start of the window, bills of ended instances, and marks already logged."""

    start: float
    settled: float = 0.0
    warned: bool = False
    reached: bool = False


@dataclass(frozen=True, slots=True)
class CapStatus:
    """Status of a cap in the present window; micro-dollars, and `rate` in micro-dollars per hour."""

    cap: Cap
    ledger: CapLedger
    end: float
    #: Settled bills plus costs accrued by instances that have not ended.
    spent: float
    reserved: float
    rate: float

    @property
    def left(self) -> float:
        """The limit less what is spent and reserved; not negative."""
        return max(0.0, self.cap.limit.micro_usd - self.spent - self.reserved)

    @property
    def warns(self) -> bool:
        """Whether spending has reached the warning mark."""
        return self.spent >= self.cap.warn_at * self.cap.limit.micro_usd - SLACK

    @property
    def is_reached(self) -> bool:
        """Whether spending has reached the limit."""
        return self.spent >= self.cap.limit.micro_usd - SLACK

    def has(self, cost: float) -> bool:
        """Whether a new cost of so many micro-dollars is covered."""
        return cost <= 0 or (not self.is_reached and cost <= self.left + SLACK)

    @property
    def next_mark(self) -> float:
        """The next amount of spending that triggers a warning or the limit; infinity if there is none."""
        if self.is_reached:
            return inf
        limit = float(self.cap.limit.micro_usd)
        return limit if self.ledger.warned else min(limit, self.cap.warn_at * limit)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A cap that keeps a job from leaving, the job's cost in its window, and what is left; micro-dollars."""

    standing: CapStatus
    cost: float
    left: float
