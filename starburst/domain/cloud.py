"""Offers of the cloud, rules about them, and rented instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from starburst.domain import machine_facts
from starburst.domain.constraints import Term
from starburst.domain.machine_facts import COMMON, MachineFacts
from starburst.domain.money import Money
from starburst.domain.resources import Resources, total


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance type at a price in a place. `name` is unique in a catalog."""

    name: str
    resources: Resources
    #: Dollars per hour; None is unknown and counts as higher than every known price.
    price_per_hour: Money | None
    region: str = ""
    spot: bool = False
    #: Family of the instance type; a task has one demand per family, as its types share a processor type.
    family: str = ""
    #: Seconds from the launch request until the instance takes tasks, before such a launch was seen; 0 if
    #: unknown (policy/boot_times.py).
    ready_s: float = 0.0
    #: Provider, such as "aws", or "" if unknown; zone within the region, or "" for any.
    cloud: str = ""
    zone: str = ""
    #: For an any-zone offer: (zone, name of the single-zone offer) for each zone that can be chosen.
    zones: tuple[tuple[str, str], ...] = ()
    #: Architecture of the processor as Kubernetes names it, and the maker of its GPUs.
    arch: str = COMMON[machine_facts.ARCH]
    gpu_maker: str = COMMON[machine_facts.GPU_MAKER]
    #: Memory of one GPU, MiB; 0 if unknown.
    gpu_memory_mib: int = 0
    #: Number of equal machines that are rented, billed and given back as one, in one zone and one network;
    #: `resources` are those of each, the price is that of all.
    nodes: int = 1
    #: Whether its machines are rented one by one only: a gang has no network between several.
    single: bool = False
    #: Whether its machines can have a container engine, in which jobs with an image run.
    engine: bool = True
    #: Why the account may not rent it now, such as a quota; "" if it may, or if that is unknown.
    barred: str = ""

    @property
    def title(self) -> str:
        """Its name, with the number of its machines if it has several."""
        return self.name if self.nodes == 1 else f"{self.nodes} × {self.name}"

    @property
    def instance_type(self) -> str:
        """Its instance type in its cloud."""
        return self.name.removesuffix("/spot").rpartition("/")[2]

    @property
    def capacity(self) -> Resources:
        """Resources of all its machines."""
        return self.resources if self.nodes == 1 else total([self.resources] * self.nodes)

    def times(self, nodes: int) -> Offer:
        """So many machines of this one-machine offer, as one."""
        if nodes == 1:
            return self
        price = None if self.price_per_hour is None else self.price_per_hour * nodes
        return replace(self, nodes=nodes, price_per_hour=price)

    def facts(self) -> MachineFacts:
        """What is known of a machine of this offer, of an unknown zone if it has several."""
        found = {
            machine_facts.ARCH: self.arch,
            machine_facts.OS: "linux",
            machine_facts.HOSTNAME: "",
            machine_facts.INSTANCE_TYPE: self.instance_type,
            machine_facts.CAPACITY: machine_facts.SPOT if self.spot else machine_facts.ON_DEMAND,
            machine_facts.GPU_MAKER: self.gpu_maker,
            machine_facts.GPU_COUNT: str(self.resources.gpus),
            **machine_facts.of_gpus(self.resources, self.gpu_memory_mib),
        }
        if self.region:
            found[machine_facts.REGION] = self.region
        if self.zone:
            found[machine_facts.ZONE] = self.zone
        return found

    def in_zone(self, zone: str) -> Offer | None:
        """The single-zone variant of this offer; None if the zone does not have it."""
        name = dict(self.zones).get(zone)
        return None if name is None else replace(self, name=name, zone=zone, zones=())


@dataclass(frozen=True, slots=True)
class OfferRules:
    """Demands of a job's user on the instances rented for it; the default admits every offer.

    Source: the annotations starburst.io/infra, use-spot and max-hourly-cost; `requires`: the manifest's node
    selector and required node affinity, in the words of `machine_facts`.
    """

    #: "" is any.
    cloud: str = ""
    region: str = ""
    zone: str = ""
    spot: bool | None = None
    #: Dollars per hour and machine; an unknown price exceeds every ceiling.
    ceiling: Money | None = None
    #: What node selector and affinity of the manifest require: one of these terms must hold. Empty demands a
    #: machine of the common kind.
    requires: tuple[Term, ...] = ()
    #: Further places that will do, each as cloud, region and zone.
    elsewhere: tuple[tuple[str, str, str], ...] = ()
    #: Whether the job runs in a container of its image; its `Job` sets it.
    engine: bool = False

    @property
    def asks(self) -> bool:
        """Whether the user demands anything."""
        return self not in (ANY_OFFER, ANY_WITH_ENGINE)

    @property
    def places(self) -> tuple[tuple[str, str, str], ...]:
        """The places of which any will do, each as cloud, region and zone."""
        return (self.cloud, self.region, self.zone), *self.elsewhere

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones that are named among its places."""
        return tuple(zone for _, _, zone in self.places if zone)

    def admits(self, offer: Offer) -> bool:
        """Whether the job may run on an instance of this offer."""
        return self.meets(offer) and (
            self is ANY_OFFER
            or (self._is_there(offer) and self.spot in (None, offer.spot) and self.affords(offer))
        )

    def meets(self, offer: Offer) -> bool:
        """Whether a machine of this offer is what image and manifest require, as far as that is known."""
        if self.engine and not offer.engine:
            return False
        if not self.requires:
            usual = COMMON[machine_facts.ARCH], COMMON[machine_facts.GPU_MAKER]
            return (offer.arch, offer.gpu_maker) == usual
        return machine_facts.meet(self.requires, offer.facts(), tuple(zone for zone, _ in offer.zones))

    @property
    def names_zones(self) -> bool:
        """Whether the manifest's requirements depend on the zone."""
        return any(each.key == machine_facts.ZONE for term in self.requires for each in term)

    def why_none(self, offers: Iterable[Offer]) -> str:
        """The demand that excludes all of these offers, which otherwise hold the job."""
        offers = [offer for offer in offers if offer.engine or not self.engine]
        if not offers:
            return f"{NO_ENGINE}; it runs without its image with starburst.io/runtime: host"
        if not any(map(self.meets, offers)):
            return f"no offer that holds it {machine_facts.shown(self.requires)}"
        offers = [offer for offer in offers if self.meets(offer)]
        names = ("/".join(part or "*" for part in each) for each in self.places)
        place = " or ".join(name.removesuffix("/*").removesuffix("/*") for name in names)
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
        return any(
            cloud in ("", offer.cloud) and region in ("", offer.region) and zone in ("", offer.zone)
            for cloud, region, zone in self.places
        )

    def affords(self, offer: Offer) -> bool:
        """Whether the price of each of its machines is within the ceiling."""
        price = offer.price_per_hour
        return self.ceiling is None or (price is not None and price <= self.ceiling * offer.nodes)


ANY_OFFER = OfferRules()
ANY_WITH_ENGINE = OfferRules(engine=True)
#: Why no offer is for a job with an image.
NO_ENGINE = "each machine that holds it is a container, which runs no images"


class InstancePhase(str, Enum):
    """Phase of an instance. It may cost money in every phase except the last two."""

    LAUNCHING = "launching"
    READY = "ready"
    TERMINATING = "terminating"  # until the cloud confirms the end
    GONE = "gone"
    FAILED = "failed"  # the launch failed


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as a cloud reports it.

    `id` is the identifier in calls to the cloud. It is the launch intent for an instance of this controller,
    and a name that equals no intent of this controller for an instance of another one.
    """

    id: str
    offer_name: str
    phase: InstancePhase
    #: Start and, once ended, end of billing; seconds since the epoch of the scheduler's clock.
    launched_at: float
    ended_at: float | None = None
    preempted: bool = False
    #: Id of the store it was launched from; "" if the cloud does not report it.
    controller: str = ""
    #: End of its lease, at which it shuts down by itself; None if the cloud does not report it.
    expires_at: float | None = None
    #: Number of machines that it consists of.
    nodes: int = 1
