"""Accounts of the caps: money spent and money reserved in the present calendar window.

A cap's ledger stores one amount, the bills of ended instances. Spending and reservations of the instances
that have not ended are derived from the fleet whenever they are needed: an instance accrues rate · time,
divided among its jobs (policy/cost_allocation.py), from its request if it is still launching and until its
end is confirmed if it is terminating. Reserved is what its jobs are expected to spend before the window ends.
No reservation is stored, so none is lost at a restart or left behind by a job, and a late report takes effect
on arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from starburst.core.model.actions import Slot, places
from starburst.core.model.budget_values import SLACK, CapLedger, CapStatus, Shortfall
from starburst.core.model.estimates import released_by, unsaved_s
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import OverBudget
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.state import State
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Job, Phase
from starburst.domain.money import Money
from starburst.policy.caps import HOUR_S, Cap
from starburst.policy.cost_allocation import Use


def cap_statuses(state: State) -> Mapping[str, CapStatus]:
    """Status of every cap at `state.now`, by name; cached until the time, a job or an instance changes."""
    if state.books is None or state.books[0] != state.now:
        state.books = state.now, {cap.name: _standing(state, cap) for cap in state.settings.caps}
    return state.books[1]


def ledger(state: State, cap: Cap) -> CapLedger:
    """The cap's ledger of the present window; a new window starts with an empty one."""
    start, _ = cap.window(state.now)
    kept = state.ledgers.get(cap.name)
    return kept if kept is not None and kept.start >= start else CapLedger(start)


def settle(state: State, machine: InstanceRecord) -> None:
    """Add an ended instance's bill to the ledgers, as far as it falls into the present windows."""
    if machine.launched_at is None or machine.ended_at is None:  # a failed launch without a bill
        return
    for cap in state.settings.caps:
        kept = ledger(state, cap)
        paid = _share(state, machine, cap, cap.window(state.now))
        state.ledgers[cap.name] = replace(kept, settled=kept.settled + paid)
    state.books = None


def needs(state: State, record: JobRecord, offers: Sequence[Offer], end: float) -> float:
    """Expected cost of a job on one instance per offer, until it ends or the window ends; micro-dollars.

    The time on each instance is boot time plus run time. Infinity if no price at all is known.
    """
    run_s = unsaved_s(record, state.run_times.longest_s(record.job))
    fleet, cost = state.fleet, 0.0
    for offer in offers:
        rate = fleet.rate(offer)
        if offer.price_per_hour is None and not rate.micro_usd:
            return inf
        cost += rate.micro_usd * min(fleet.boot_s(offer) + run_s, end - state.now) / HOUR_S
    return cost


def short(
    state: State, record: JobRecord, offers: Sequence[Offer], taken: Mapping[str, float]
) -> Shortfall | None:
    """The first cap with less left, after `taken` is deducted, than the job costs; None if there is none."""
    for standing in cap_statuses(state).values():
        if standing.cap.covers(record.job):
            cost = needs(state, record, offers, standing.end)
            others = taken.get(standing.cap.name, 0.0)
            if cost > 0 and not standing.has(cost + others):
                return Shortfall(standing, cost, max(0.0, standing.left - others))
    return None


def set_aside(state: State, record: JobRecord, offers: Sequence[Offer], taken: dict[str, float]) -> None:
    """Add the job's expected cost to `taken` under every cap that covers it."""
    for name, standing in cap_statuses(state).items():
        if standing.cap.covers(record.job):
            taken[name] = taken.get(name, 0.0) + needs(state, record, offers, standing.end)


def cheaper_at(state: State, record: JobRecord) -> float:
    """End of the next offer pause if caps have enough left for the job without the pauses; or infinity."""
    again_at = state.fleet.retry_at(record.job, state.now)
    offers = state.fleet.price(record.job, state.fleet.permitted())
    if again_at is None or isinstance(offers, str) or short(state, record, offers, {}) is not None:
        return inf
    return again_at


def is_capped(record: JobRecord) -> bool:
    """Whether a cap keeps the job queued until the window ends, or money or a cheaper offer is there."""
    obstacle = record.obstacle
    return (
        record.phase is Phase.QUEUED
        and isinstance(obstacle, OverBudget)
        and obstacle.until >= record.deadline
    )


def cost_of(record: JobRecord) -> float:
    """Expected cost of a job that a cap keeps queued, micro-dollars; infinity if unknown or without a cap."""
    return record.obstacle.cost if isinstance(record.obstacle, OverBudget) else inf


def affords(state: State, jobs: Sequence[Job], cost: float) -> bool:
    """Whether every cap that covers one of these jobs is not reached and has `cost` micro-dollars left."""
    return all(
        standing.has(max(cost, SLACK))
        for standing in cap_statuses(state).values()
        if any(standing.cap.covers(job) for job in jobs)
    )


def ends_by_cap(state: State, record: JobRecord, slots: Sequence[Slot]) -> bool:
    """Whether a run may not begin on machines that it has, as a cap is reached that lets runs not finish."""
    reached = (standing.cap for standing in cap_statuses(state).values() if standing.is_reached)
    free = all(state.fleet.instances[name].is_free for name in places(slots))
    return not free and any(cap.then != "finish" and cap.covers(record.job) for cap in reached)


def amount(micro_usd: float) -> Money:
    """The amount as `Money`, rounded to the nearest micro-dollar."""
    return Money(round(micro_usd))


def _standing(state: State, cap: Cap) -> CapStatus:
    kept, (start, end) = ledger(state, cap), cap.window(state.now)
    spent, reserved, rate = kept.settled, 0.0, 0.0
    for machine in state.fleet.instances.values():
        if not any(cap.covers(job) for job in _payers(state, machine)):
            continue
        spent += _share(state, machine, cap, (start, state.now))
        rate += _share(state, machine, cap, (state.now, state.now + HOUR_S))
        reserved += _expected(state, machine, cap, end)
    return CapStatus(cap, kept, end, spent, reserved, rate)


def _payers(state: State, machine: InstanceRecord) -> Iterator[Job]:
    return (state.jobs[job_id].job for job_id in machine.billed_to)


def _share(
    state: State,
    machine: InstanceRecord,
    cap: Cap,
    time: tuple[float, float],
    uses: Sequence[Use] | None = None,
) -> float:
    """Cost of an instance over a time interval that falls to the jobs covered by a cap; micro-dollars."""
    began = machine.requested_at if machine.launched_at is None else machine.launched_at
    ended = inf if machine.ended_at is None else machine.ended_at
    since, until = max(time[0], began), min(time[1], ended)
    if all(cap.covers(job) for job in _payers(state, machine)):
        covered = machine.billed_s(since, until)  # all users are covered: no division is needed
    else:
        seconds = machine.seconds(since, until, uses)
        covered = sum(part for job_id, part in seconds.items() if cap.covers(state.jobs[job_id].job))
    return machine.rate.micro_usd * covered / HOUR_S


def _expected(state: State, machine: InstanceRecord, cap: Cap, end: float) -> float:
    """Money reserved on an instance: expected future cost in this window of the jobs covered by a cap."""
    until = {job_id: _ends(state, state.jobs[job_id], machine) for job_id in machine.job_ids}
    uses = [
        replace(use, until=max(use.since, until[use.job_id]))
        for use in machine.uses
        if use.until == inf and use.job_id in until
    ]
    last = min(end, max(until.values(), default=0.0))
    return _share(state, machine, cap, (state.now, last), uses) if uses else 0.0


def _ends(state: State, record: JobRecord, machine: InstanceRecord) -> float:
    """Expected time at which a job releases an instance, on the high side (`released_by`)."""
    stays = record.phase is not Phase.STOPPING or machine.id in {slot.where for slot in record.moving}
    booting = machine.phase is InstancePhase.LAUNCHING
    return released_by(
        record,
        state.now,
        state.run_times.longest_s(record.job),
        mean_s=state.load.load.mean_runtime_s,
        grace_s=None if stays else 0.0 if record.no_grace else state.grace_s(record.job),
        up_at=machine.requested_at + state.fleet.boot_s(machine.offer) if booting else 0.0,
    )
