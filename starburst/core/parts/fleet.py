"""The rented instances: offers of the cloud, instances, the jobs that hold them, and their bills."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from starburst.core.model.actions import Slot, places
from starburst.core.model.throughput import Speeds
from starburst.domain.cloud import InstancePhase, Offer, OfferRules
from starburst.domain.job import Job, Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources, total
from starburst.domain.value import value
from starburst.policy.cost_allocation import Use, divide
from starburst.policy.packing.packers.none import NoPacking
from starburst.policy.packing.plan import Memory, Packer, Plan, Rented, Situation

OPEN_PHASES = (InstancePhase.LAUNCHING, InstancePhase.READY)


@dataclass(slots=True)
class InstanceRecord:
    """State of one instance. Its id is its launch intent. Times are scheduler seconds."""

    id: str
    offer: Offer
    #: Dollars per hour used for its bill; an unknown price is replaced by the highest known one.
    rate: Money
    requested_at: float
    phase: InstancePhase = InstancePhase.LAUNCHING
    launched_at: float | None = None
    ended_at: float | None = None
    preempted: bool = False
    micro_usd: int = 0
    #: Since when it does not answer although the cloud reports it as running.
    unreachable_since: float | None = None
    #: Since when it answers and starts no work; this is permanent.
    unfit_since: float | None = None
    #: Jobs that hold it, in order of assignment.
    job_ids: list[str] = field(default_factory=list)
    #: All jobs that share its bill, including those that have left it.
    billed_to: list[str] = field(default_factory=list)
    #: Resources that each of its jobs holds.
    held: dict[str, Resources] = field(default_factory=dict)
    #: Share and time interval of each use, by which the bill is divided (policy/cost_allocation.py).
    uses: list[Use] = field(default_factory=list)

    def cost(self, now: float) -> Money:
        """Its cost up to `now`."""
        if self.launched_at is None:
            return Money()
        until = self.ended_at if self.ended_at is not None else now
        return self.rate.for_seconds(max(0.0, until - self.launched_at))

    @property
    def is_sound(self) -> bool:
        """Whether it is launching or ready, and neither unreachable nor unfit."""
        heard_of = self.unreachable_since is None and self.unfit_since is None
        return self.phase in OPEN_PHASES and heard_of

    @property
    def present(self) -> list[Use]:
        """The uses that have not ended."""
        return [use for use in self.uses if use.until == inf]

    def share_of(self, demand: Resources) -> float:
        """The demand's largest fraction of the instance over GPUs, CPUs and memory."""
        return demand.largest_share(self.offer.resources)

    @property
    def free(self) -> Resources:
        """Resources that no job holds."""
        return self.offer.resources - total(self.held.values())

    def shares(self, now: float) -> dict[str, int]:
        """Its cost up to `now`, divided among the jobs it is billed to, micro-dollars."""
        micro_usd = self.cost(now).micro_usd
        if len(self.billed_to) == 1:
            return {self.billed_to[0]: micro_usd}
        since = 0.0 if self.launched_at is None else self.launched_at
        until = now if self.ended_at is None else self.ended_at
        return _split(micro_usd, dict.fromkeys(self.billed_to, 0.0) | self.seconds(since, until))

    def seconds(self, since: float, until: float, uses: Sequence[Use] | None = None) -> dict[str, float]:
        """The seconds from `since` to `until`, divided among the jobs; `uses` replaces the recorded uses."""
        if len(self.billed_to) == 1:
            return {self.billed_to[0]: max(0.0, until - since)}
        if not self.uses and until > since:  # stored by a version that recorded no uses
            return dict.fromkeys(self.billed_to, (until - since) / len(self.billed_to or (1,)))
        return divide(self.uses if uses is None else uses, since, until)

    def hold(self, job_id: str, slots: Iterable[Slot], now: float) -> bool:
        """Assign exactly these slots to a job; returns whether the bill is new to the job."""
        if job_id in self.job_ids:
            self.leave(job_id, now)
        self.job_ids.append(job_id)
        held = self.held[job_id] = total([slot.resources for slot in slots])
        self.uses.append(Use(job_id, self.share_of(held), now))
        if job_id in self.billed_to:
            return False
        self.billed_to.append(job_id)
        return True

    def leave(self, job_id: str, now: float) -> None:
        """Remove a job from the instance."""
        self.job_ids.remove(job_id)
        self.held.pop(job_id, None)
        for n, use in enumerate(self.uses):
            if use.until == inf and use.job_id == job_id:
                self.uses[n] = Use(job_id, use.share, use.since, max(use.since, now))


@value
class Leaver:
    """A job that leaves for the cloud, and its expected end if it starts now."""

    job: Job
    until: float
    #: Instances whose total throughput would fall if it joined them.
    shuns: frozenset[str] = frozenset()


@dataclass(slots=True)
class Packed:
    """Result of packing jobs that leave together."""

    #: Job → its slots, by rank. Jobs without slots are in `lacking`.
    slots: dict[str, tuple[Slot, ...]] = field(default_factory=dict)
    #: Jobs that joined existing instances.
    joined: set[str] = field(default_factory=set)
    launched: dict[str, InstanceRecord] = field(default_factory=dict)
    #: Job → number of instances whose bill it did not share before.
    bills: dict[str, int] = field(default_factory=dict)
    #: Job → why no offer holds it.
    lacking: dict[str, str] = field(default_factory=dict)


class Fleet:
    """Offers and instances. The packer chooses what to rent; the fleet records slots and bills."""

    def __init__(self, packer: Packer, ceiling: Money | None = None) -> None:
        """`ceiling`: highest price per hour of an instance; it also excludes unknown prices."""
        self._packer = packer
        self.ceiling = ceiling
        #: Whether jobs may share instances.
        self.shares = not isinstance(packer, NoPacking)
        self.offers: dict[str, Offer] = {}
        #: Offer name → end of its pause.
        self.paused: dict[str, float] = {}
        #: Instances that have not ended.
        self.instances: dict[str, InstanceRecord] = {}
        #: Ids of the instances that are unreachable or unfit.
        self.troubled: set[str] = set()
        self.launches = 0
        #: Total bill of ended instances.
        self.settled = Money()
        #: Cache of `price`, and the version of the throughput table and the offers that it is valid for.
        self._priced: dict[tuple[tuple[Resources, ...], OfferRules, str], list[Offer] | str] = {}
        self._priced_for: tuple[int, tuple[Offer, ...]] = (-1, ())
        #: The packer's state from the last consolidation.
        self.memory = Memory()
        #: Learnt throughputs of jobs alone and on shared instances.
        self.speeds = Speeds()

    def available(self, now: float) -> list[Offer]:
        """Offers that are not paused now."""
        if not self.paused:
            return list(self.offers.values())
        return [o for o in self.offers.values() if self.paused.get(o.name, now) <= now]

    def offer(self, name: str) -> Offer | None:
        """The offer of this name, single-zone offers included; None if the catalog has none."""
        known = self.offers.get(name)
        apart = (o.in_zone(zone) for o in self.offers.values() for zone, its in o.zones if its == name)
        return known or next(apart, None)

    def rate(self, offer: Offer) -> Money:
        """Price per hour used for an offer's bills; an unknown price is replaced by the highest known one."""
        if offer.price_per_hour is not None:
            return offer.price_per_hour
        known = [o.price_per_hour for o in self.offers.values() if o.price_per_hour is not None]
        return max(known, default=Money())

    def price(self, job: Job, offers: Iterable[Offer]) -> list[Offer] | str:
        """The offers that a job alone would get, one per instance, or the reason why none holds it.

        The result depends only on the job's demand, the offers and the throughput table, and is cached until
        the offers or the table change.
        """
        asked = (job.tasks, job.offer_rules, self.speeds.name_of(job))
        basis = (self.speeds.table.version, tuple(offers))
        if basis != self._priced_for:
            self._priced_for, self._priced = basis, {}
        found = self._priced.get(asked)
        if found is None:
            found = self._priced[asked] = self._price(job, basis[1])
        return found

    def _price(self, job: Job, offers: Iterable[Offer]) -> list[Offer] | str:
        tasks = self._tasks(job, None)
        offers = _by_zone(offers, tasks)
        plan = self._packer.plan(Situation(tasks, self._within(offers), throughput=self.speeds.table))
        if not plan.unplaced:
            return [launch.offer for launch in plan.launches]
        if self.ceiling is None or self._packer.plan(Situation(tasks, offers)).unplaced:
            return plan.unplaced[0][1]
        return f"no offer that holds it is known to cost {self.ceiling}/h or less (cloud.max_usd_per_hour)"

    def _within(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """The offers within the price ceiling."""
        if self.ceiling is None:
            return offers
        return tuple(filter(OfferRules(ceiling=self.ceiling).affords, offers))

    def barred(self, job: Job) -> str:
        """The user's annotation that excludes every offer which would hold the job; "" if there is none."""
        lacks = self.price(job, self.offers.values())
        unasked = OfferRules(requires=job.offer_rules.requires)
        free = self.price(replace(job, offer_rules=unasked), self.offers.values())
        return lacks if isinstance(lacks, str) and not isinstance(free, str) else ""

    def pack(self, leavers: Sequence[Leaver], busy_until: Mapping[str, float], now: float) -> Packed:
        """Assign slots to jobs that leave together.

        A job joins an instance that other jobs need for longer anyway, at no additional cost (the rule of
        Stratus' runtime bins, section 4). For the remaining jobs together the packer plans what to rent.
        `busy_until` gives the expected end of the last job on each instance.
        """
        packed, rest = Packed(), []
        for leaver in leavers:
            slots = self.join(leaver, busy_until) if self.shares else ()
            if slots:
                packed.joined.add(leaver.job.id)
                packed.bills[leaver.job.id] = self.hold(leaver.job.id, slots, now)
                packed.slots[leaver.job.id] = slots
            else:
                rest.append(leaver)
        if rest:
            self._rent(rest, packed, now)
        return packed

    def rent_apart(self, jobs: Iterable[Job], now: float) -> Packed:
        """Assign slots to jobs that share no instance: each gets what it would get alone (`price`)."""
        packed, offers = Packed(), self.available(now)
        for job in jobs:
            chosen = self.price(job, offers)
            if isinstance(chosen, str):
                packed.lacking[job.id] = chosen
                continue
            slots = []
            for rank, offer in enumerate(chosen):
                record = self.launch(offer, now)
                packed.launched[record.id] = record
                slots.append(Slot(rank, record.id, job.tasks[rank]))
            packed.slots[job.id] = tuple(slots)
            packed.bills[job.id] = self.hold(job.id, slots, now)
        return packed

    def _rent(self, leavers: Sequence[Leaver], packed: Packed, now: float) -> None:
        tasks = tuple(task for leaver in leavers for task in self._tasks(leaver.job, leaver.until - now))
        offers = self._within(_by_zone(self.available(now), tasks))
        plan = self._packer.plan(Situation(tasks, offers, throughput=self.speeds.table, now=now))
        packed.lacking = {task.job_id: lacking for task, lacking in reversed(plan.unplaced)}
        slots: dict[str, list[Slot]] = {}
        for launch in plan.launches:
            here = [task for task in launch.tasks if task.job_id not in packed.lacking]
            if not here:
                continue
            record = self.launch(launch.offer, now)
            packed.launched[record.id] = record
            for task in here:
                slots.setdefault(task.job_id, []).append(Slot(task.rank, record.id, task.resources))
        for job_id, found in slots.items():
            packed.slots[job_id] = tuple(sorted(found, key=lambda slot: slot.rank))
            packed.bills[job_id] = self.hold(job_id, packed.slots[job_id], now)

    def launch(self, offer: Offer, now: float) -> InstanceRecord:
        """Add an instance that no job holds yet."""
        self.launches += 1
        record = InstanceRecord(f"i-{self.launches:06d}", offer, self.rate(offer), now)
        self.instances[record.id] = record
        return record

    def reconsider(self, tasks: Iterable[Task], rented: Iterable[Rented], now: float) -> Plan:
        """The packer's plan for tasks that run on these instances; keeps its memory for the next call."""
        tasks = tuple(tasks)
        offers = self._within(_by_zone(self.available(now), tasks))
        plan = self._packer.plan(
            Situation(tasks, offers, tuple(rented), self.speeds.table, now=now, memory=self.memory)
        )
        self.memory = plan.memory
        return plan

    def join(self, leaver: Leaver, busy_until: Mapping[str, float]) -> tuple[Slot, ...]:
        """Slots on instances needed for longer anyway, tightest fit first; () if not all tasks fit."""
        free = {
            instance.id: instance.free
            for instance in self.instances.values()
            if busy_until.get(instance.id, 0.0) >= leaver.until
            and instance.is_sound
            and instance.held.keys() == set(instance.job_ids)
            and instance.id not in leaver.shuns
            and leaver.job.offer_rules.admits(instance.offer)
        }
        slots = []
        for rank, demand in enumerate(leaver.job.tasks):
            fitting = [name for name, room in free.items() if demand.fits(room)]
            if not fitting:
                return ()
            name = min(fitting, key=lambda n: free[n].largest_share(self.instances[n].offer.resources))
            free[name] -= demand
            slots.append(Slot(rank, name, demand))
        return tuple(slots)

    def hold(self, job_id: str, slots: Sequence[Slot], now: float) -> int:
        """Assign exactly these slots to the job; returns how many instances' bills are new to it."""
        by_name: dict[str, list[Slot]] = {}
        for slot in slots:
            by_name.setdefault(slot.where, []).append(slot)
        return sum(
            self.instances[name].hold(job_id, there, now)
            for name, there in by_name.items()
            if name in self.instances
        )

    def retry_at(self, job: Job, now: float) -> float | None:
        """End of the next offer pause; None if none is paused or no offer at all holds the job."""
        if isinstance(self.price(job, self.offers.values()), str):
            return None
        return min((until for until in self.paused.values() if until > now), default=None)

    def ready(self, slots: Sequence[Slot]) -> bool:
        """Whether every instance of these slots is ready."""
        return all(self.instances[slot.where].phase is InstancePhase.READY for slot in slots)

    def release(self, job_id: str, slots: Sequence[Slot], now: float) -> list[InstanceRecord]:
        """Remove the job from the instances of these slots; returns those that it held."""
        left = []
        for name in places(slots):
            record = self.instances.get(name)
            if record is None or job_id not in record.job_ids:
                continue
            record.leave(job_id, now)
            left.append(record)
        return left

    def _tasks(self, job: Job, remaining_s: float | None) -> tuple[Task, ...]:
        name = self.speeds.name_of(job)
        return tuple(
            Task(job.id, rank, demand, workload=name, remaining_s=remaining_s, offer_rules=job.offer_rules)
            for rank, demand in enumerate(job.tasks)
        )

    def settle(self, record: InstanceRecord) -> dict[str, int]:
        """Remove an instance that has ended; returns each job's share of its bill, micro-dollars."""
        ended_at = record.ended_at or 0.0
        record.micro_usd = record.cost(ended_at).micro_usd
        self.settled += Money(record.micro_usd)
        del self.instances[record.id]
        self.troubled.discard(record.id)
        return record.shares(ended_at)


def _by_zone(offers: Iterable[Offer], tasks: Iterable[Task]) -> tuple[Offer, ...]:
    """The offers, plus single-zone variants of any-zone offers for the zones that tasks require."""
    offers = tuple(offers)
    tasks = tuple(tasks)
    zones = dict.fromkeys(task.offer_rules.zone for task in tasks if task.offer_rules.zone)
    if any(task.offer_rules.names_zones for task in tasks):
        zones |= dict.fromkeys(zone for offer in offers for zone, _ in offer.zones)
    if not zones:
        return offers
    apart = (offer.in_zone(zone) for zone in zones for offer in offers)
    return (*offers, *(offer for offer in apart if offer is not None))


def _split(amount: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Divide an integer in proportion to the weights, with an exact sum; equally if all weights are 0."""
    whole = sum(weights.values())
    if whole <= 0:
        weights, whole = dict.fromkeys(weights, 1.0), float(len(weights))
    parts = {name: int(amount * weight / whole) for name, weight in weights.items()}
    rest = amount - sum(parts.values())
    for name in sorted(parts, key=lambda name: parts[name] - amount * weights[name] / whole)[: abs(rest)]:
        parts[name] += 1 if rest > 0 else -1
    return parts
