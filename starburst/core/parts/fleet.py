"""The rented instances: offers of the cloud, instances, the jobs that hold them, and their bills."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from starburst.core.model.actions import Slot, places
from starburst.core.model.throughput import Speeds
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.parts.join_search import NOTHING, Bid, JoinSearch, Leaver
from starburst.core.parts.spare_room import SpareRoom
from starburst.domain.cloud import InstancePhase, Offer, OfferRules
from starburst.domain.job import Job, Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.caps import HOUR_S
from starburst.policy.packing.gangs import GangMachine, gang_machine
from starburst.policy.packing.packers.none import NoPacking
from starburst.policy.packing.plan import Memory, Packer, Plan, Rented, Situation

#: Seconds that an offer is paused at most, however many of its machines came to nothing; and the doublings
#: after which no pause grows further.
LONGEST_PAUSE_S, MOST_DOUBLINGS = 3600.0, 20
#: Lists of offers for which prices are cached: all, those that may be rented, those that are not paused.
CACHES = 4

#: The version of the throughput table, and offers.
_Basis = tuple[int, tuple[Offer, ...]]
#: What the price of a job depends on besides.
_Asked = tuple[tuple[Resources, ...], OfferRules, str, bool]


@dataclass(slots=True)
class Packed:
    """Result of packing jobs that leave together."""

    #: Job → its slots, by rank. Jobs without slots are in `lacking`.
    slots: dict[str, tuple[Slot, ...]] = field(default_factory=dict)
    #: Job that joined an existing instance → for how many seconds only it needs that.
    joined: dict[str, float] = field(default_factory=dict)
    launched: dict[str, InstanceRecord] = field(default_factory=dict)
    #: Job → number of instances whose bill it did not share before.
    bills: dict[str, int] = field(default_factory=dict)
    #: Job → why no offer holds it.
    lacking: dict[str, str] = field(default_factory=dict)
    #: Gang → why it gets the machines that it gets.
    whys: dict[str, str] = field(default_factory=dict)


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
        #: Offer name → machines in a row that were billed and on which no job began.
        self.wasted: dict[str, int] = {}
        #: Instances that have not ended.
        self.instances: dict[str, InstanceRecord] = {}
        #: Ids of the instances that are unreachable or unfit.
        self.troubled: set[str] = set()
        self.launches = 0
        #: Total bill of ended instances.
        self.settled = Money()
        #: Caches of `price`, the last used one first, each with what it is valid for.
        self._priced: list[tuple[_Basis, dict[_Asked, list[Offer] | str]]] = []
        #: The packer's state from the last consolidation.
        self.memory = Memory()
        #: Learnt throughputs of jobs alone and on shared instances, seconds of pulls and of boots.
        self.speeds = Speeds()
        #: What queued jobs have not seen of the room that costs nothing.
        self.spare = SpareRoom()

    def available(self, now: float) -> list[Offer]:
        """Offers that the account may rent and that are not paused now, without the zones that are."""
        paused = {name for name, until in self.paused.items() if until > now}
        offers = self.permitted()
        if not paused:
            return offers
        return [_without_zones(offer, paused) for offer in offers if offer.name not in paused]

    def permitted(self) -> list[Offer]:
        """Offers that the account may rent, as far as is known."""
        return [offer for offer in self.offers.values() if not offer.barred]

    def bar(self, job: Job) -> str:
        """Why the account may not rent what would hold the job; "" if it may, or if no offer holds it."""
        if not any(offer.barred for offer in self.offers.values()):
            return ""
        wanted = self.price(job, self.offers.values())
        if isinstance(wanted, str) or not isinstance(self.price(job, self.permitted()), str):
            return ""
        return next((offer.barred for offer in wanted if offer.barred), "")

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
        return max(known, default=Money()) * offer.nodes

    def price(self, job: Job, offers: Iterable[Offer]) -> list[Offer] | str:
        """The offers that a job alone would get, one per instance, or the reason why none holds it.

        A gang gets one instance, of one machine or several. The result depends only on the job's demand, the
        offers and the throughput table, and is cached for the last `CACHES` of these.
        """
        asked = (job.tasks, job.offer_rules, self.speeds.name_of(job), job.spread)
        known = self._prices((self.speeds.table.version, tuple(offers)))
        found = known.get(asked)
        if found is None:
            found = known[asked] = self._price(job, self._priced[0][0][1])
        return found

    def _prices(self, basis: _Basis) -> dict[_Asked, list[Offer] | str]:
        """The cache for a version of the throughput table and some offers."""
        at = next((number for number, (known, _) in enumerate(self._priced) if known == basis), None)
        self._priced.insert(0, (basis, {}) if at is None else self._priced.pop(at))
        del self._priced[CACHES:]
        return self._priced[0][1]

    def _price(self, job: Job, offers: Iterable[Offer]) -> list[Offer] | str:
        if len(job.tasks) > 1:
            found = self._gang_machine(job, offers)
            return found if isinstance(found, str) else [found.offer]
        tasks = self._tasks(job, None)
        offers = _by_zone(offers, tasks)
        plan = self._packer.plan(Situation(tasks, self._within(offers), throughput=self.speeds.table))
        if not plan.unplaced:
            return [launch.offer for launch in plan.launches]
        if self.ceiling is None or self._packer.plan(Situation(tasks, offers)).unplaced:
            return plan.unplaced[0][1]
        return self._too_dear()

    def _gang_machine(self, job: Job, offers: Iterable[Offer]) -> GangMachine | str:
        tasks = self._tasks(job, None)
        offers = _by_zone(offers, tasks)
        found = gang_machine(tasks, self._within(offers), spread=job.spread)
        if self.ceiling is None or not isinstance(found, str):
            return found
        return found if isinstance(gang_machine(tasks, offers, spread=job.spread), str) else self._too_dear()

    def _too_dear(self) -> str:
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

    def pack(self, leavers: Sequence[Leaver], busy_until: dict[str, float], now: float) -> Packed:
        """Assign slots to jobs that leave together.

        A job joins an instance that other jobs need for longer anyway, at no additional cost (the rule of
        Stratus' runtime bins, section 4), or whose bill grows by less than what the job costs alone. For the
        remaining jobs together the packer plans what to rent; a gang gets an instance of its own, which other
        jobs may join. `busy_until`: expected end of the last job on each instance, which those that join
        extend.
        """
        packed, rest = Packed(), []
        search = self.search(busy_until, self._needed(busy_until, now) if self.shares else ())
        for leaver in leavers:
            slots = search.slots(leaver, self.bid(leaver.job, leaver.until - now, now))
            if slots:
                packed.joined[leaver.job.id] = extend(busy_until, slots, leaver.until)
                self._assign(leaver.job.id, slots, packed, now)
            elif len(leaver.job.tasks) > 1:
                self._rent_gang(leaver.job, packed, now)
            else:
                rest.append(leaver)
        if rest:
            self._rent(rest, packed, now)
        return packed

    def bid(self, job: Job, left_s: float, now: float) -> Bid:
        """What a job costs that runs for `left_s` on an instance of its own, with its boot.

        If nobody said how long it runs, no instance may cost more an hour than its own: then sharing costs no
        more however long that is. Nothing if no offer holds it.
        """
        offers = self.price(job, self.available(now))
        if isinstance(offers, str):
            return NOTHING
        rates = [(self.rate(offer).micro_usd, self.boot_s(offer)) for offer in offers]
        most = sum(rate * (boot_s + left_s) / HOUR_S for rate, boot_s in rates)
        return Bid(most, sum(rate for rate, _ in rates) if job.runtime_estimate_s is None else inf)

    def rent_apart(self, jobs: Iterable[Job], now: float) -> Packed:
        """Assign slots to jobs that share no instance: each gets what it would get alone (`price`)."""
        packed, offers = Packed(), self.available(now)
        for job in jobs:
            if len(job.tasks) > 1:
                self._rent_gang(job, packed, now)
                continue
            chosen = self.price(job, offers)
            if isinstance(chosen, str):
                packed.lacking[job.id] = chosen
                continue
            record = self.launch(chosen[0], now)
            packed.launched[record.id] = record
            self._assign(job.id, (Slot(0, record.id, job.tasks[0]),), packed, now)
        return packed

    def _rent_gang(self, job: Job, packed: Packed, now: float) -> None:
        """Assign slots on one new instance to all tasks of a job."""
        chosen = self._gang_machine(job, self.available(now))
        if isinstance(chosen, str):
            packed.lacking[job.id] = chosen
            return
        record = self.launch(chosen.offer, now)
        packed.launched[record.id] = record
        packed.whys[job.id] = chosen.why
        places = enumerate(zip(chosen.nodes, job.tasks, strict=True))
        slots = tuple(Slot(rank, record.id, demand, node) for rank, (node, demand) in places)
        self._assign(job.id, slots, packed, now)

    def _assign(self, job_id: str, slots: tuple[Slot, ...], packed: Packed, now: float) -> None:
        packed.slots[job_id] = slots
        packed.bills[job_id] = self.hold(job_id, slots, now)

    def _rent(self, leavers: Sequence[Leaver], packed: Packed, now: float) -> None:
        tasks = tuple(task for leaver in leavers for task in self._tasks(leaver.job, leaver.until - now))
        offers = self._within(_by_zone(self.available(now), tasks))
        plan = self._packer.plan(Situation(tasks, offers, throughput=self.speeds.table, now=now))
        packed.lacking |= {task.job_id: lacking for task, lacking in reversed(plan.unplaced)}
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
            self._assign(job_id, tuple(sorted(found, key=lambda slot: slot.rank)), packed, now)

    def launch(self, offer: Offer, now: float) -> InstanceRecord:
        """Add an instance that no job holds yet."""
        self.launches += 1
        record = InstanceRecord(f"i-{self.launches:06d}", offer, self.rate(offer), now)
        self.instances[record.id] = record
        return record

    def reconsider(self, tasks: Iterable[Task], rented: Iterable[Rented], now: float) -> Plan:
        """The packer's plan for tasks that run on these instances; keeps its memory for the next call.

        Only such a plan weighs how long an instance takes to come up.
        """
        tasks = tuple(tasks)
        offers = self._within(_by_zone(self.available(now), tasks))
        offers = tuple(replace(offer, ready_s=self.boot_s(offer)) for offer in offers)
        plan = self._packer.plan(
            Situation(tasks, offers, tuple(rented), self.speeds.table, now=now, memory=self.memory)
        )
        self.memory = plan.memory
        return plan

    def join(self, leaver: Leaver, busy_until: Mapping[str, float]) -> tuple[Slot, ...]:
        """Slots on an instance needed for longer anyway, the tightest fit; () if none holds all tasks."""
        return self.search(busy_until, self._needed(busy_until, leaver.until)).slots(leaver)

    def search(self, busy_until: Mapping[str, float], among: Iterable[InstanceRecord]) -> JoinSearch:
        """`join` for many jobs, on some of the instances."""
        return JoinSearch(among, busy_until, self.pull_s)

    def _needed(self, busy_until: Mapping[str, float], until: float) -> Iterator[InstanceRecord]:
        """The instances that other jobs need at least until then."""
        return (each for each in self.instances.values() if busy_until.get(each.id, 0.0) >= until)

    def pull_s(self, job: Job, instance: InstanceRecord) -> float:
        """Seconds that a job would wait on a running instance for the pull of its image."""
        return self.speeds.pulls.expected_s(job.image) if instance.lacks(job.image) else 0.0

    def boot_s(self, offer: Offer) -> float:
        """Expected real seconds from the request of an instance until it takes jobs."""
        return self.speeds.boots.expected_s(offer)

    def hold(self, job_id: str, slots: Sequence[Slot], now: float) -> int:
        """Assign exactly these slots to the job; returns how many instances' bills are new to it."""
        new_bills = 0
        for name in places(slots):
            if name in self.instances:
                there = [slot for slot in slots if slot.where == name]
                new_bills += self.instances[name].hold(job_id, there, now)
        return new_bills

    def retry_at(self, job: Job, now: float) -> float | None:
        """End of the next offer pause; None if none is paused or no permitted offer holds the job."""
        if isinstance(self.price(job, self.permitted()), str):
            return None
        return min((until for until in self.paused.values() if until > now), default=None)

    def pause(self, offer: str, now: float, pause_s: float, *, wasted: bool) -> float:
        """Rent nothing of an offer for a while; returns for how many seconds.

        For `pause_s` or, if its last machines were billed and no job began there, twice as long for each, up
        to an hour.
        """
        if wasted:
            self.wasted[offer] = self.wasted.get(offer, 0) + 1
            doubled_s = pause_s * 2.0 ** min(self.wasted[offer] - 1, MOST_DOUBLINGS)
            pause_s = max(pause_s, min(doubled_s, LONGEST_PAUSE_S))
        self.paused[offer] = now + pause_s
        return pause_s

    def proved(self, slots: Sequence[Slot]) -> None:
        """A run has begun on these slots: machines of such offers are worth their bill."""
        for name in places(slots):
            if name in self.instances:
                self.wasted.pop(self.instances[name].offer.name, None)

    def ready(self, slots: Sequence[Slot]) -> bool:
        """Whether every instance of these slots is ready."""
        return not [s for s in slots if self.instances[s.where].phase is not InstancePhase.READY]

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


def extend(busy_until: dict[str, float], slots: Sequence[Slot], until: float) -> float:
    """Have the instance of these slots needed until then; for how many seconds longer than before."""
    (name,) = places(slots)
    longer_s = max(0.0, until - busy_until.get(name, 0.0))
    busy_until[name] = busy_until.get(name, 0.0) + longer_s
    return longer_s


def _without_zones(offer: Offer, names: Container[str]) -> Offer:
    """An any-zone offer without the zones whose single-zone offers have these names."""
    if not any(name in names for _, name in offer.zones):
        return offer
    return replace(offer, zones=tuple((zone, name) for zone, name in offer.zones if name not in names))


def _by_zone(offers: Iterable[Offer], tasks: Iterable[Task]) -> tuple[Offer, ...]:
    """The offers, plus single-zone variants of any-zone offers for the zones that tasks require."""
    offers = tuple(offers)
    tasks = tuple(tasks)
    zones = dict.fromkeys(zone for task in tasks for zone in task.offer_rules.zones)
    if any(task.offer_rules.names_zones for task in tasks):
        zones |= dict.fromkeys(zone for offer in offers for zone, _ in offer.zones)
    if not zones:
        return offers
    apart = (offer.in_zone(zone) for zone in zones for offer in offers)
    return (*offers, *(offer for offer in apart if offer is not None))
