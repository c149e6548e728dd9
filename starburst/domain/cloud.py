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
    #: Instance types of one family have the same kind of processor, so that tasks ask for the same of it.
    family: str = ""
    #: Seconds from asking for one until it takes tasks.
    ready_s: float = 0.0


class InstancePhase(str, Enum):
    """Life of a rented machine. It may cost money in every phase but the last two."""

    LAUNCHING = "launching"
    READY = "ready"
    TERMINATING = "terminating"  # not gone until the cloud says so
    GONE = "gone"
    FAILED = "failed"  # the launch came to nothing


@dataclass(frozen=True, slots=True)
class Instance:
    """A rented machine as one cloud reports it.

    `id` is what the cloud's calls take. One of our own controller is its launch intent; one of another
    controller has a name that no intent of ours has.
    """

    id: str
    offer_name: str
    phase: InstancePhase
    #: When billing began and, once over, ended; seconds since the epoch of the scheduler's clock.
    launched_at: float
    ended_at: float | None = None
    preempted: bool = False
    #: Id of the store it was launched from; "" if the cloud does not tell.
    controller: str = ""
    #: When it ends by itself unless its lease is renewed, as last renewed; None if the cloud does not tell.
    expires_at: float | None = None
