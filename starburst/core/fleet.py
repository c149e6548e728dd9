"""The rented machines: what the cloud offers, what we have, whom it is for, what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from starburst.core.actions import Slot
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Job, Task
from starburst.domain.money import Money
from starburst.policy.packing.plan import Packer, Situation

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
    #: Jobs it is for, in the order they came.
    job_ids: list[str] = field(default_factory=list)
    #: Everyone who shares its bill.
    billed_to: list[str] = field(default_factory=list)

    def cost(self, now: float) -> Money:
        """What it has cost up to `now`."""
        if self.launched_at is None:
            return Money()
        until = self.ended_at if self.ended_at is not None else now
        return self.rate.for_seconds(max(0.0, until - self.launched_at))


class Fleet:
    """Offers and instances. Decides nothing by itself: it asks the packer and keeps the books."""

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        self.offers: dict[str, Offer] = {}
        #: Offer name → when it may be asked for again.
        self.paused: dict[str, float] = {}
        #: Machines not yet ended.
        self.instances: dict[str, InstanceRecord] = {}
        self.launches = 0
        #: The bills of machines that have ended.
        self.settled = Money()

    def available(self, now: float) -> list[Offer]:
        """Offers that may be asked for now."""
        return [o for o in self.offers.values() if self.paused.get(o.name, now) <= now]

    def rate(self, offer: Offer) -> Money:
        """Dollars per hour to count an offer at: an unknown price is the dearest known one."""
        known = [o.price_per_hour for o in self.offers.values() if o.price_per_hour is not None]
        return offer.price_per_hour or max(known, default=Money())

    def price(self, job: Job, offers: Iterable[Offer]) -> list[Offer] | str:
        """The offers a job would be given, one per machine, or what is lacking."""
        plan = self._packer.plan(Situation(_tasks(job), tuple(offers)))
        return plan.unplaced[0][1] if plan.unplaced else [launch.offer for launch in plan.launches]

    def rent(self, job: Job, now: float) -> tuple[list[InstanceRecord], tuple[Slot, ...]] | str:
        """New machines for a job and its slots on them, or what is lacking."""
        plan = self._packer.plan(Situation(_tasks(job), tuple(self.available(now)), now=now))
        if plan.unplaced:
            return plan.unplaced[0][1]
        records, slots = [], []
        for launch in plan.launches:
            self.launches += 1
            record = InstanceRecord(f"i-{self.launches:06d}", launch.offer, self.rate(launch.offer), now)
            record.job_ids = [job.id]
            record.billed_to = [job.id]
            self.instances[record.id] = record
            records.append(record)
            slots += [Slot(task.rank, record.id, task.resources) for task in launch.tasks]
        return records, tuple(sorted(slots, key=lambda slot: slot.rank))

    def retry_at(self, job: Job, now: float) -> float | None:
        """When a pause ends after which the job could leave; None if no offer could ever hold it."""
        if isinstance(self.price(job, self.offers.values()), str):
            return None
        return min((until for until in self.paused.values() if until > now), default=None)

    def ready(self, slots: Sequence[Slot]) -> bool:
        """Whether every machine of these slots is up."""
        return all(self.instances[slot.where].phase is InstancePhase.READY for slot in slots)

    def release(self, job_id: str, slots: Sequence[Slot]) -> list[InstanceRecord]:
        """The job no longer needs these machines; those that now nobody needs are to be given back."""
        empty = []
        for name in dict.fromkeys(slot.where for slot in slots):
            record = self.instances.get(name)
            if record is None or job_id not in record.job_ids:
                continue
            record.job_ids.remove(job_id)
            if not record.job_ids and record.phase in OPEN_PHASES:
                record.phase = InstancePhase.TERMINATING
                empty.append(record)
        return empty

    def settle(self, record: InstanceRecord) -> dict[str, int]:
        """Close the books of a machine that has ended: each job's share of the bill in micro-dollars."""
        record.micro_usd = record.cost(record.ended_at or 0.0).micro_usd
        self.settled += Money(record.micro_usd)
        del self.instances[record.id]
        share, rest = divmod(record.micro_usd, len(record.billed_to))
        return {job_id: share + (rank < rest) for rank, job_id in enumerate(record.billed_to)}


def _tasks(job: Job) -> tuple[Task, ...]:
    return tuple(Task(job.id, rank, demand) for rank, demand in enumerate(job.tasks))
