"""What the cloud sells and what we have rented of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
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
    #: Whose it is, such as "aws", and where in the region; "" is not known, or any zone.
    cloud: str = ""
    zone: str = ""
    #: Where one of any zone can be had in a given one too: the zones, and the offer's name in each.
    zones: tuple[tuple[str, str], ...] = ()

    def in_zone(self, zone: str) -> Offer | None:
        """The same in one zone; None if it is not to be had there."""
        name = dict(self.zones).get(zone)
        return None if name is None else replace(self, name=name, zone=zone, zones=())


@dataclass(frozen=True, slots=True)
class OfferRules:
    """What a job's user demands of machines rented for it; the default admits every offer.

    They are the annotations starburst.io/infra, use-spot and max-hourly-cost.
    """

    #: "" is any.
    cloud: str = ""
    region: str = ""
    zone: str = ""
    spot: bool | None = None
    #: Dollars per hour and machine; an unknown price is above every ceiling.
    ceiling: Money | None = None

    def admits(self, offer: Offer) -> bool:
        """Whether the job may run on such a machine."""
        return self is ANY_OFFER or (
            self._is_there(offer) and self.spot in (None, offer.spot) and self._is_cheap(offer)
        )

    def why_none(self, offers: Iterable[Offer]) -> str:
        """Which demand leaves none of these offers, which would do but for these rules."""
        place = "/".join(part or "*" for part in (self.cloud, self.region, self.zone)).removesuffix("/*")
        place = place.removesuffix("/*")
        there = [offer for offer in offers if self._is_there(offer)]
        if not there:
            return f"no offer that holds it is in {place} (starburst.io/infra)"
        these = "offer that holds it" if place == "*" else f"offer in {place} that holds it"
        kind = [offer for offer in there if self.spot in (None, offer.spot)]
        if not kind and self.spot:
            return f"no {these} is a spot machine (starburst.io/use-spot)"
        if not kind:
            return f"every {these} is a spot machine (starburst.io/use-spot)"
        these += {None: "", True: " and is a spot machine", False: " and is no spot machine"}[self.spot]
        prices = [offer.price_per_hour for offer in kind if offer.price_per_hour is not None]
        least = f"the cheapest costs {min(prices)}/h" if prices else "no price is known"
        return f"no {these} costs {self.ceiling}/h or less (starburst.io/max-hourly-cost); {least}"

    def _is_there(self, offer: Offer) -> bool:
        return (
            self.cloud in ("", offer.cloud)
            and self.region in ("", offer.region)
            and self.zone in ("", offer.zone)
        )

    def _is_cheap(self, offer: Offer) -> bool:
        price = offer.price_per_hour
        return self.ceiling is None or (price is not None and price <= self.ceiling)


ANY_OFFER = OfferRules()


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
