"""The books of caps on spending: what counts in the present window, and what is set aside for those who run.

Only one number per cap is kept, the bills of machines that have ended. All else follows from the machines
that have not, at the time it is asked: they accrue rate · time, divided among their jobs
(policy/cost_allocation.py). One that still comes up counts from when it was asked for, one that is being
given back until it is gone. Set aside is what their jobs are expected to spend yet before the window ends. So
nothing is forgotten at a restart, no reservation is left over, and a late report counts once it is heard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from starburst.core.model.estimates import released_by, unsaved_s
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import OverBudget
from starburst.core.parts.fleet import InstanceRecord
from starburst.core.state import State
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Job, Phase
from starburst.domain.money import Money
from starburst.policy.caps import HOUR_S, Cap
from starburst.policy.cost_allocation import Use

#: What a machine is taken to need until it takes jobs, if its offer does not say; seconds.
BOOT_S = 180.0
#: Micro-dollars by which a sum may miss its mark: times are binary fractions.
SLACK = 1.0


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is kept of a cap: the window that this is about, and the micro-dollars of machines that ended."""

    start: float
    settled: float = 0.0
    warned: bool = False
    reached: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How a cap stands in the present window; micro-dollars, and micro-dollars per hour."""

    cap: Cap
    ledger: Ledger
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
class Lacking:
    """What keeps a job from leaving: its cost in the window of a cap, and what is left; micro-dollars."""

    standing: Standing
    cost: float
    left: float


def standings(state: State) -> Mapping[str, Standing]:
    """How every cap stands at `state.now`, by name."""
    if state.books is None or state.books[0] != state.now:
        state.books = state.now, {cap.name: _standing(state, cap) for cap in state.settings.caps}
    return state.books[1]


def ledger(state: State, cap: Cap) -> Ledger:
    """Of the present window: a new one begins at nothing."""
    start, _ = cap.window(state.now)
    kept = state.ledgers.get(cap.name)
    return kept if kept is not None and kept.start >= start else Ledger(start)


def settle(state: State, machine: InstanceRecord) -> None:
    """A machine has ended: what of its bill falls into the present windows is no longer derived from it."""
    if machine.launched_at is None or machine.ended_at is None:  # a launch that came to nothing has no bill
        return
    for cap in state.settings.caps:
        kept = ledger(state, cap)
        paid = _share(state, machine, cap, cap.window(state.now))
        state.ledgers[cap.name] = replace(kept, settled=kept.settled + paid)
    state.books = None


def needs(state: State, record: JobRecord, offers: Sequence[Offer], end: float) -> float:
    """What a job costs on machines of these offers until it is done or the window ends; micro-dollars.

    Infinity if nobody knows the price of anything: nothing can be set aside then.
    """
    run_s = unsaved_s(record, state.runtime_s(record.job))
    fleet, cost = state.fleet, 0.0
    for offer in offers:
        rate = fleet.rate(offer)
        if offer.price_per_hour is None and not rate.micro_usd:
            return inf
        cost += rate.micro_usd * min(_boot_s(offer) + run_s, end - state.now) / HOUR_S
    return cost


def short(
    state: State, record: JobRecord, offers: Sequence[Offer], taken: Mapping[str, float]
) -> Lacking | None:
    """The first cap with less left than the job costs, if others have `taken` that much of each."""
    for standing in standings(state).values():
        if standing.cap.covers(record.job):
            cost = needs(state, record, offers, standing.end)
            others = taken.get(standing.cap.name, 0.0)
            if cost > 0 and not standing.has(cost + others):
                return Lacking(standing, cost, max(0.0, standing.left - others))
    return None


def set_aside(state: State, record: JobRecord, offers: Sequence[Offer], taken: dict[str, float]) -> None:
    """Count what a job costs as taken from every cap on it."""
    for name, standing in standings(state).items():
        if standing.cap.covers(record.job):
            taken[name] = taken.get(name, 0.0) + needs(state, record, offers, standing.end)


def is_capped(record: JobRecord) -> bool:
    """Whether a cap keeps the job from leaving, until the cap's window ends or money is released."""
    obstacle = record.obstacle
    return (
        record.phase is Phase.QUEUED
        and isinstance(obstacle, OverBudget)
        and obstacle.until == record.deadline
    )


def cost_of(record: JobRecord) -> float:
    """What a job that a cap keeps would cost; infinity if nobody knows."""
    return record.obstacle.cost if isinstance(record.obstacle, OverBudget) else inf


def affords(state: State, jobs: Sequence[Job], cost: float) -> bool:
    """Whether every cap on one of these jobs has as much left, and anything; micro-dollars."""
    return all(
        standing.has(max(cost, SLACK))
        for standing in standings(state).values()
        if any(standing.cap.covers(job) for job in jobs)
    )


def amount(micro_usd: float) -> Money:
    """As people read it, rounded to the nearest micro-dollar."""
    return Money(round(micro_usd))


def _standing(state: State, cap: Cap) -> Standing:
    kept, (start, end) = ledger(state, cap), cap.window(state.now)
    spent, reserved, rate = kept.settled, 0.0, 0.0
    for machine in state.fleet.instances.values():
        if not any(cap.covers(job) for job in _payers(state, machine)):
            continue
        spent += _share(state, machine, cap, (start, state.now))
        rate += _share(state, machine, cap, (state.now, state.now + HOUR_S))
        reserved += _expected(state, machine, cap, end)
    return Standing(cap, kept, end, spent, reserved, rate)


def _payers(state: State, machine: InstanceRecord) -> Iterator[Job]:
    return (state.jobs[job_id].job for job_id in machine.billed_to)


def _share(
    state: State,
    machine: InstanceRecord,
    cap: Cap,
    time: tuple[float, float],
    uses: Sequence[Use] | None = None,
) -> float:
    """What the jobs that a cap covers pay of a machine for a time; micro-dollars."""
    began = machine.requested_at if machine.launched_at is None else machine.launched_at
    ended = inf if machine.ended_at is None else machine.ended_at
    since, until = max(time[0], began), min(time[1], ended)
    if all(cap.covers(job) for job in _payers(state, machine)):
        covered = max(0.0, until - since)  # whatever the parts are: a machine may have had many users
    else:
        seconds = machine.seconds(since, until, uses)
        covered = sum(part for job_id, part in seconds.items() if cap.covers(state.jobs[job_id].job))
    return machine.rate.micro_usd * covered / HOUR_S


def _expected(state: State, machine: InstanceRecord, cap: Cap, end: float) -> float:
    """What the jobs that a cap covers will yet pay of a machine in this window, by estimates."""
    until = {job_id: _ends(state, state.jobs[job_id], machine) for job_id in machine.job_ids}
    uses = [
        replace(use, until=max(use.since, until[use.job_id]))
        for use in machine.uses
        if use.until == inf and use.job_id in until
    ]
    last = min(end, max(until.values(), default=0.0))
    return _share(state, machine, cap, (state.now, last), uses) if uses else 0.0


def _ends(state: State, record: JobRecord, machine: InstanceRecord) -> float:
    """When a job is expected to need a machine no longer."""
    stays = record.phase is not Phase.STOPPING or machine.id in {slot.where for slot in record.moving}
    booting = machine.phase is InstancePhase.LAUNCHING
    return released_by(
        record,
        state.now,
        state.runtime_s(record.job),
        mean_s=state.load.load.mean_runtime_s,
        grace_s=None if stays else 0.0 if record.no_grace else state.grace_s(record.job),
        up_at=machine.requested_at + _boot_s(machine.offer) if booting else 0.0,
    )


def _boot_s(offer: Offer) -> float:
    return offer.ready_s or BOOT_S
