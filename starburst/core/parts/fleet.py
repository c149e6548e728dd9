"""The rented machines: what the cloud offers, what we have, whom it is for, what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from starburst.core.model.actions import Slot
from starburst.core.model.throughput import Speeds
from starburst.domain.cloud import ANY_OFFER, InstancePhase, Offer, OfferRules
from starburst.domain.job import Job, Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources, total
from starburst.policy.cost_allocation import Use, divide
from starburst.policy.packing.packers.none import NoPacking
from starburst.policy.packing.plan import Memory, Packer, Plan, Rented, Situation

OPEN_PHASES = (InstancePhase.LAUNCHING, InstancePhase.READY)


@dataclass(slots=True)
class InstanceRecord:
    """State of one machine. Its id is the intent it is launched under. Times are scheduler seconds."""

    id: str
    offer: Offer
    #: Dollars per hour it is counted at; an unknown price counts as the dearest known one.
    rate: Money
    requested_at: float
    phase: InstancePhase = InstancePhase.LAUNCHING
    launched_at: float | None = None
    ended_at: float | None = None
    preempted: bool = False
    micro_usd: int = 0
    #: Since when nobody gets through to it though the cloud says that it runs.
    unreachable_since: float | None = None
    #: Since when it is known to take no work though it answers; it never does again.
    unfit_since: float | None = None
    #: Jobs it is for, in the order they came.
    job_ids: list[str] = field(default_factory=list)
    #: Everyone who shares its bill.
    billed_to: list[str] = field(default_factory=list)
    #: What each job that it is for has of it.
    held: dict[str, Resources] = field(default_factory=dict)
    #: Who had how much of it and when: what its bill is split by (policy/cost_allocation.py).
    uses: list[Use] = field(default_factory=list)

    def cost(self, now: float) -> Money:
        """What it has cost up to `now`."""
        if self.launched_at is None:
            return Money()
        until = self.ended_at if self.ended_at is not None else now
        return self.rate.for_seconds(max(0.0, until - self.launched_at))

    @property
    def is_sound(self) -> bool:
        """Whether it is ours, heard of, and takes work."""
        heard_of = self.unreachable_since is None and self.unfit_since is None
        return self.phase in OPEN_PHASES and heard_of

    @property
    def present(self) -> list[Use]:
        """What its jobs have of it now."""
        return [use for use in self.uses if use.until == inf]

    def share_of(self, demand: Resources) -> float:
        """The largest fraction of it, over GPUs, CPUs and memory, that this is."""
        return _largest_share(demand, self.offer.resources)

    @property
    def free(self) -> Resources:
        """What no job has of it."""
        return _less(self.offer.resources, total(self.held.values()))

    def shares(self, now: float) -> dict[str, int]:
        """Its cost up to `now`, split among those it is billed to, in micro-dollars."""
        since = 0.0 if self.launched_at is None else self.launched_at
        until = now if self.ended_at is None else self.ended_at
        return _split(
            self.cost(now).micro_usd, dict.fromkeys(self.billed_to, 0.0) | self.seconds(since, until)
        )

    def seconds(self, since: float, until: float, uses: Sequence[Use] | None = None) -> dict[str, float]:
        """The seconds of a time as they fall to each job; by other uses than those there were, if given."""
        if len(self.billed_to) == 1:
            return {self.billed_to[0]: max(0.0, until - since)}
        if not self.uses and until > since:  # kept by a version that noted none
            return dict.fromkeys(self.billed_to, (until - since) / len(self.billed_to or (1,)))
        return divide(self.uses if uses is None else uses, since, until)

    def hold(self, job_id: str, slots: Iterable[Slot], now: float) -> bool:
        """A job has these slots of it from now on, and no others; whether its bill is new to the job."""
        if job_id in self.job_ids:
            self.leave(job_id, now)
        self.job_ids.append(job_id)
        self.held[job_id] = total(slot.resources for slot in slots)
        self.uses.append(Use(job_id, self.share_of(self.held[job_id]), now))
        if job_id in self.billed_to:
            return False
        self.billed_to.append(job_id)
        return True

    def leave(self, job_id: str, now: float) -> None:
        """A job has nothing of it any more."""
        self.job_ids.remove(job_id)
        self.held.pop(job_id, None)
        for n, use in enumerate(self.uses):
            if use.until == inf and use.job_id == job_id:
                self.uses[n] = Use(job_id, use.share, use.since, max(use.since, now))


@dataclass(frozen=True, slots=True)
class Leaver:
    """A job on its way out, and when it will be done if it starts now."""

    job: Job
    until: float
    #: Machines that would get less done with it than without it.
    shuns: frozenset[str] = frozenset()


@dataclass(slots=True)
class Packed:
    """Where jobs that left together go."""

    #: Job → its slots, by rank; the others are in `lacking`.
    slots: dict[str, tuple[Slot, ...]] = field(default_factory=dict)
    #: Jobs on machines that were there already.
    joined: set[str] = field(default_factory=set)
    launched: dict[str, InstanceRecord] = field(default_factory=dict)
    #: Job → how many machines' bills it did not share before.
    bills: dict[str, int] = field(default_factory=dict)
    #: Job → what is lacking.
    lacking: dict[str, str] = field(default_factory=dict)


class Fleet:
    """Offers and instances. Decides nothing by itself: it asks the packer and keeps the books."""

    def __init__(self, packer: Packer, ceiling: Money | None = None) -> None:
        """`ceiling`: no machine that costs more per hour, or nobody knows what, is rented."""
        self._packer = packer
        self.ceiling = ceiling
        #: Whether jobs may share machines.
        self.shares = not isinstance(packer, NoPacking)
        self.offers: dict[str, Offer] = {}
        #: Offer name → when it may be asked for again.
        self.paused: dict[str, float] = {}
        #: Machines not yet ended.
        self.instances: dict[str, InstanceRecord] = {}
        #: Ids of the instances that are unreachable or unfit.
        self.troubled: set[str] = set()
        self.launches = 0
        #: The bills of machines that have ended.
        self.settled = Money()
        #: What the packer remembers of the last time that running jobs were reconsidered.
        self.memory = Memory()
        #: How fast jobs run beside each other, as far as that is known.
        self.speeds = Speeds()

    def available(self, now: float) -> list[Offer]:
        """Offers that may be asked for now."""
        return [o for o in self.offers.values() if self.paused.get(o.name, now) <= now]

    def offer(self, name: str) -> Offer | None:
        """The offer of this name, also that of one zone; None if it is not to be had any more."""
        known = self.offers.get(name)
        apart = (o.in_zone(zone) for o in self.offers.values() for zone, its in o.zones if its == name)
        return known or next(apart, None)

    def rate(self, offer: Offer) -> Money:
        """Dollars per hour to count an offer at: an unknown price is the dearest known one."""
        known = [o.price_per_hour for o in self.offers.values() if o.price_per_hour is not None]
        return offer.price_per_hour or max(known, default=Money())

    def price(self, job: Job, offers: Iterable[Offer]) -> list[Offer] | str:
        """The offers a job would be given, one per machine, or what is lacking."""
        tasks = self._tasks(job, None)
        offers = _by_zone(offers, tasks)
        plan = self._packer.plan(Situation(tasks, self._within(offers), throughput=self.speeds.table))
        if not plan.unplaced:
            return [launch.offer for launch in plan.launches]
        if self.ceiling is None or self._packer.plan(Situation(tasks, offers)).unplaced:
            return plan.unplaced[0][1]
        return f"no offer that holds it is known to cost {self.ceiling}/h or less (cloud.max_usd_per_hour)"

    def _within(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """The offers that are not too dear."""
        if self.ceiling is None:
            return offers
        return tuple(offer for offer in offers if OfferRules(ceiling=self.ceiling).admits(offer))

    def barred(self, job: Job) -> str:
        """The demand of its user that bars every machine which would hold a job; "" if none does."""
        lacks = self.price(job, self.offers.values())
        free = self.price(replace(job, offer_rules=ANY_OFFER), self.offers.values())
        return lacks if isinstance(lacks, str) and not isinstance(free, str) else ""

    def pack(self, leavers: Sequence[Leaver], busy_until: Mapping[str, float], now: float) -> Packed:
        """Room for jobs that leave together.

        A job joins a machine that others need for longer anyway, which costs nothing (the rule of Stratus'
        runtime bins, section 4); for all the rest together the packer says what to rent. `busy_until` says of
        each machine until when its jobs will need it, by estimates.
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
        """One more machine, for nobody yet."""
        self.launches += 1
        record = InstanceRecord(f"i-{self.launches:06d}", offer, self.rate(offer), now)
        self.instances[record.id] = record
        return record

    def reconsider(self, tasks: Iterable[Task], rented: Iterable[Rented], now: float) -> Plan:
        """What the packer would make of tasks that run on these machines."""
        tasks = tuple(tasks)
        offers = self._within(_by_zone(self.available(now), tasks))
        plan = self._packer.plan(
            Situation(tasks, offers, tuple(rented), self.speeds.table, now=now, memory=self.memory)
        )
        self.memory = plan.memory
        return plan

    def join(self, leaver: Leaver, busy_until: Mapping[str, float]) -> tuple[Slot, ...]:
        """Slots on machines that outlast the job anyway, tightest fit first; none if not all tasks fit."""
        free = {
            instance.id: instance.free
            for instance in self.instances.values()
            if instance.is_sound
            and instance.held.keys() == set(instance.job_ids)
            and busy_until.get(instance.id, 0.0) >= leaver.until
            and instance.id not in leaver.shuns
            and leaver.job.offer_rules.admits(instance.offer)
        }
        slots = []
        for rank, demand in enumerate(leaver.job.tasks):
            fitting = [name for name, room in free.items() if demand.fits(room)]
            if not fitting:
                return ()
            name = min(fitting, key=lambda n: _largest_share(free[n], self.instances[n].offer.resources))
            free[name] = _less(free[name], demand)
            slots.append(Slot(rank, name, demand))
        return tuple(slots)

    def hold(self, job_id: str, slots: Sequence[Slot], now: float) -> int:
        """The job has these slots, and no others of their machines; how many bills are new to it."""
        names = [name for name in dict.fromkeys(slot.where for slot in slots) if name in self.instances]
        return sum(
            self.instances[name].hold(job_id, [slot for slot in slots if slot.where == name], now)
            for name in names
        )

    def retry_at(self, job: Job, now: float) -> float | None:
        """When a pause ends after which the job could leave; None if no offer could ever hold it."""
        if isinstance(self.price(job, self.offers.values()), str):
            return None
        return min((until for until in self.paused.values() if until > now), default=None)

    def ready(self, slots: Sequence[Slot]) -> bool:
        """Whether every machine of these slots is up."""
        return all(self.instances[slot.where].phase is InstancePhase.READY for slot in slots)

    def release(self, job_id: str, slots: Sequence[Slot], now: float) -> list[InstanceRecord]:
        """The job no longer needs these machines; those of them that it had."""
        left = []
        for name in dict.fromkeys(slot.where for slot in slots):
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
        """Close the books of a machine that has ended: each job's share of the bill in micro-dollars."""
        ended_at = record.ended_at or 0.0
        record.micro_usd = record.cost(ended_at).micro_usd
        self.settled += Money(record.micro_usd)
        del self.instances[record.id]
        self.troubled.discard(record.id)
        return record.shares(ended_at)


def _by_zone(offers: Iterable[Offer], tasks: Iterable[Task]) -> tuple[Offer, ...]:
    """The offers, and those of any zone once more in the zones that tasks must be in."""
    zones = dict.fromkeys(task.offer_rules.zone for task in tasks if task.offer_rules.zone)
    offers = tuple(offers)
    apart = (offer.in_zone(zone) for zone in zones for offer in offers)
    return (*offers, *(offer for offer in apart if offer is not None))


def _split(amount: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Whole parts in proportion, which add up; equal parts if nothing weighs anything."""
    whole = sum(weights.values())
    if whole <= 0:
        weights, whole = dict.fromkeys(weights, 1.0), float(len(weights))
    parts = {name: int(amount * weight / whole) for name, weight in weights.items()}
    rest = amount - sum(parts.values())
    for name in sorted(parts, key=lambda name: parts[name] - amount * weights[name] / whole)[: abs(rest)]:
        parts[name] += 1 if rest > 0 else -1
    return parts


def _less(whole: Resources, part: Resources) -> Resources:
    return Resources(
        whole.gpus - part.gpus,
        whole.cpu_milli - part.cpu_milli,
        whole.memory_mib - part.memory_mib,
        whole.gpu_type,
    )


def _largest_share(part: Resources, whole: Resources) -> float:
    """The largest fraction over GPUs, CPUs and memory."""
    pairs = (
        (part.gpus, whole.gpus),
        (part.cpu_milli, whole.cpu_milli),
        (part.memory_mib, whole.memory_mib),
    )
    return max((have / of for have, of in pairs if of), default=0.0)
