"""Enforcement of caps: warnings, jobs kept from leaving, runs stopped, and retries when money is released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from starburst.core.model.actions import places
from starburst.core.model.budget_values import CapStatus
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import StopReason
from starburst.core.state import State
from starburst.core.steps.admission import wait_for_money
from starburst.core.steps.budget import cap_statuses, is_capped, ledger, set_aside, short
from starburst.core.steps.run_lifecycle import back, release, stay, stop
from starburst.domain.job import Phase
from starburst.policy.caps import HOUR_S

#: Minimum seconds until the next check of a cap, so that rounding cannot repeat a check at the same instant.
LEAST_S = 0.001


def caps_at(state: State) -> float:
    """Time at which spending at the present rate reaches the next mark of a cap; infinity if none accrues."""
    first = inf
    if not state.settings.caps:
        return first
    for standing in cap_statuses(state).values():
        if standing.rate > 0:
            missing_s = (standing.next_mark - standing.spent) / standing.rate * HOUR_S
            first = min(first, max(state.now + missing_s, state.now + LEAST_S), standing.end)
    return first


def watch_caps(state: State) -> None:
    """Log warnings and reached caps, enforce reached caps, and retry capped jobs after instances changed."""
    for cap in state.settings.caps:
        standing = cap_statuses(state)[cap.name]
        _tell(state, standing)
        if standing.is_reached and cap.then != "finish":
            _enforce(state, standing)
    if state.capped and state.changes.instances:
        retry_capped(state)


def afford(state: State, leavers: Sequence[JobRecord]) -> list[JobRecord]:
    """The leaving jobs that their caps can pay for, in order; the others go back to the queue.

    The cost of each accepted job counts against the caps of the jobs after it.
    """
    if not state.settings.caps:
        return list(leavers)
    taken: dict[str, float] = {}
    found = []
    for record in leavers:
        offers = state.fleet.price(record.job, state.fleet.available(state.now))
        lacking = None if isinstance(offers, str) else short(state, record, offers, taken)
        if lacking is not None:
            wait_for_money(state, record, lacking)
            continue
        if not isinstance(offers, str):
            set_aside(state, record, offers, taken)
        state.capped.pop(record.id, None)
        found.append(record)
    return found


def _tell(state: State, standing: CapStatus) -> None:
    """Log "cap-warned" and "cap-reached" once per window; again only if a smaller bill undid the latter."""
    kept, cap = standing.ledger, standing.cap
    if kept.reached and not standing.is_reached:
        kept = state.ledgers[cap.name] = replace(kept, reached=False)
        state.books = None
    kind = "cap-reached" if standing.is_reached else "cap-warned" if standing.warns else ""
    if not kind or standing.spent <= 0 or kept.reached or (kept.warned and not standing.is_reached):
        return
    state.ledgers[cap.name] = replace(ledger(state, cap), warned=True, reached=standing.is_reached)
    state.books = None
    spent = round(standing.spent)
    state.decide(cap.name, kind, title=cap.title, spent=spent, then=cap.then, until=standing.end)


def _enforce(state: State, standing: CapStatus) -> None:
    """Apply a reached cap to the jobs it covers.

    Offloading jobs give up their launching instances and queue; planned moves of stopping jobs are dropped;
    runs are stopped if the cap's `then` is "stop", or if it is "return" and the job checkpoints. Machines
    that cost nothing are no cap's matter: jobs leave for them, and stay there.
    """
    cap = standing.cap
    paid = [machine for machine in state.fleet.instances.values() if not machine.is_free]
    names, here = {machine.id for machine in paid}, {name for machine in paid for name in machine.job_ids}
    for record in sorted((state.jobs[job_id] for job_id in here), key=lambda record: record.seq):
        if not cap.covers(record.job):
            continue
        if record.phase is Phase.OFFLOADING:
            release(state, record)
            back(state, record)
        elif record.phase is Phase.STOPPING or names.isdisjoint(places(record.slots)):
            stay(state, record)  # releases the slots held at the target of a move
        elif cap.then == "stop" or record.job.checkpoint:
            grace_s = state.grace_s(record.job)
            state.decide(record.id, "stopping", grace_s=grace_s, why=f"{cap.title} is spent")
            stop(state, record, StopReason.CAP, grace_s)


def retry_capped(state: State) -> None:
    """Let capped jobs leave now if every cap on them has enough left.

    Called after instances changed, and after a restart: a cap may have been raised or removed.
    """
    taken: dict[str, float] = {}
    for job_id, cost in list(state.capped.items()):
        record = state.jobs.get(job_id)
        if record is None or not is_capped(record):
            del state.capped[job_id]
            continue
        over = [standing for standing in cap_statuses(state).values() if standing.cap.covers(record.job)]
        if all(standing.has(cost + taken.get(standing.cap.name, 0.0)) for standing in over):
            del state.capped[job_id]
            state.set_deadline(record, state.now)
            for standing in over:
                taken[standing.cap.name] = taken.get(standing.cap.name, 0.0) + cost
