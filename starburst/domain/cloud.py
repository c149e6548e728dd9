"""What the cloud sells and what we have rented of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from starburst.domain.money import Money
from starburst.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance type at a price in a place. `name` is unique in a catalog."""

    name: str
    resources: Resources
    #: Dollars per hour; None is unknown and counts as dearer than every known price.
    price_per_hour: Money | None
    region: str = ""
    spot: bool = False

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Cheapest first, unknown prices last, ties by name."""
        return (
            self.price_per_hour is None,
            self.price_per_hour.micro_usd if self.price_per_hour else 0,
            self.name,
        )


class InstancePhase(str, Enum):
    """Life of a rented machine. It may cost money in every phase but the last two."""

    LAUNCHING = "launching"
    READY = "ready"
    TERMINATING = "terminating"  # not gone until the cloud says so
    GONE = "gone"
    FAILED = "failed"  # the launch came to nothing


@dataclass(frozen=True, slots=True)
class Instance:
    """A rented machine as one cloud reports it."""

    id: str
    offer_name: str
    phase: InstancePhase
    #: When billing began and, once over, ended; seconds since the epoch of the scheduler's clock.
    launched_at: float
    ended_at: float | None = None
    preempted: bool = False
