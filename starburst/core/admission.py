"""In and out of the queue: how long a job may wait, when it leaves for the cloud, and what if it cannot."""

from __future__ import annotations

from math import inf, isinf

from starburst.core.events import JobSubmitted
from starburst.core.jobs import JobRecord
from starburst.core.state import State
from starburst.domain.job import CloudChoice, Job, Phase
from starburst.policy.ordering import Candidate
from starburst.policy.waiting import Ask, hours


def submitted(state: State, event: JobSubmitted) -> None:
    """A new job waits, or leaves at once."""
    job = event.job
    if job.id in state.jobs:
        return
    state.arrivals += 1
    record = JobRecord(job, state.arrivals, state.now, queued_at=state.now)
    state.jobs[job.id] = record
    state.load.submitted(state.size(job))
    state.touch(record)
    why = _leaves_at_once(state, job)
    if why:
        leave(state, record, why)
    else:
        set_wait(state, record)
        state.joining.append(record)


def _leaves_at_once(state: State, job: Job) -> str:
    if job.cloud is CloudChoice.NEVER:
        return ""
    if job.cloud is CloudChoice.ONLY:
        return "only"
    if state.settings.offload_cpu_only and not job.resources.gpus:
        return "cpu-only"
    if state.settings.short_job_s and state.runtime_s(job) < state.settings.short_job_s:
        return "short"
    return "" if state.capacity.ever(job) or not state.capacity.nodes else "too-big"


def set_wait(state: State, record: JobRecord) -> None:
    """Give a job its waiting deadline, counted from now."""
    job = record.job
    wait_s, rule = _wait_of(state, record)
    record.queued_at = state.now
    # By way of when it is due, as published: so exact ties of deadlines and completions fall the same way.
    runtime_s = state.runtime_s(job)
    record.deadline = (state.now + wait_s + runtime_s) - runtime_s
    record.wait = {
        "need": str(job.resources),
        "wait_s": None if isinf(wait_s) else wait_s,
        "rule": rule,
        "runtime_s": runtime_s,
        "estimated_by": "user" if job.runtime_estimate_s is not None else "mean of past jobs",
    }
    state.decide(record.id, "waits", **record.wait)


def _wait_of(state: State, record: JobRecord) -> tuple[float, str]:
    job = record.job
    if job.cloud is CloudChoice.NEVER:
        return inf, "its starburst.io/cloud says never"
    if job.max_wait_s is not None and not record.returned:
        return job.max_wait_s, "its starburst.io/max-wait"
    ask = Ask(state.size(job), job.resources.gpus, state.runtime_s(job), record.returned)
    policy, factor = state.waiting, state.factor
    wait_s = policy.wait_s(factor, ask)
    rule = f"{policy.title}: {policy.formula(factor, ask)}{_calibrated(state)}"
    if wait_s > state.settings.max_wait_s:
        return state.settings.max_wait_s, f"{rule}, but at most {hours(state.settings.max_wait_s)}"
    return wait_s, rule


def _calibrated(state: State) -> str:
    """What the control of the budget has done to the factor, for the reason."""
    if not state.meter.calibrated:
        return ""
    multiplier = state.meter.multiplier(state.load.load.mean_runtime_s)
    spent, budget = state.meter.account.spent_percent, state.settings.budget_percent
    return f", calibrated ×{multiplier:.2g}: {spent:.2g} % of the {budget:g} % spent so far"


def join(state: State, record: JobRecord) -> None:
    """Take a place in the queue."""
    record.phase = Phase.QUEUED
    record.order_key = state.order(
        Candidate(record.seq, state.runtime_s(record.job), record.deadline, record.job.priority)
    )
    state.queue.add(record)
    state.meter.waits(record)
    state.walk.joined(record)
    state.set_deadline(record, record.deadline)
    if state.prospects is not None:
        state.prospects.suspect(record)


def requeue(state: State, record: JobRecord) -> None:
    """A job whose run is gone wants another one."""
    record.slots = ()
    record.phase = Phase.QUEUED
    state.touch(record)
    if record.job.cloud is CloudChoice.ONLY:
        leave(state, record, "only")
    else:
        state.joining.append(record)


def expire(state: State) -> bool:
    """Send off every job whose wait is over; whether there was one."""
    any_due = False
    while (job_id := state.deadlines.pop_due(state.now)) is not None:
        leave(state, state.jobs[job_id], "expired")
        any_due = True
    return any_due


def give_up(state: State) -> None:
    """Who cannot start before its wait ends leaves at once, if the settings say so."""
    if state.prospects is not None:
        for record in state.prospects.hopeless(state.capacity, state.now):
            leave(state, record, "hopeless")


def trim(state: State) -> None:
    """While the queue is longer than Q_max its last job leaves; one that may not leave is passed over."""
    limit = state.settings.queue_limit
    if limit is not None and len(state.queue) > limit:
        for record in state.queue.beyond(limit, lambda r: r.job.cloud is not CloudChoice.NEVER):
            leave(state, record, "queue-full")


def leave(state: State, record: JobRecord, why: str) -> None:
    """Off to the cloud with all who leave about now, or, if no offer will have it, back to waiting."""
    offers = state.fleet.price(record.job, state.fleet.available(state.now))
    if isinstance(offers, str):
        if why not in ("queue-full", "hopeless"):  # else its own wait goes on
            keep(state, record, offers)
        return
    if record.id in state.queue:
        state.dequeue(record)
    record.phase = Phase.OFFLOADING
    record.slots = ()
    record.leaving = why
    state.departing.setdefault(record.id, state.now)
    state.touch(record)
    if why in ("expired", "hopeless"):
        state.meter.cut_short(state.load.load.mean_runtime_s)


def keep(state: State, record: JobRecord, lacks: str) -> None:
    """It should leave but cannot: it waits on, and tries again when an offer's pause ends."""
    retry_at = state.fleet.retry_at(record.job, state.now)
    if retry_at is not None:
        lacks = "every offer that holds it is paused after a failed launch"
    if record.wait.get("lacks") != lacks:
        record.wait = {"need": str(record.job.resources), **record.wait, "lacks": lacks}
        state.decide(record.id, "no-offer", lacks=lacks, retry_at=retry_at)
    state.meter.rests(record)
    record.phase = Phase.QUEUED
    record.deadline = inf if retry_at is None else retry_at
    if record.id in state.queue or record.job.cloud is CloudChoice.ONLY:
        state.set_deadline(record, record.deadline)  # cloud-only jobs stay out of the cluster's queue
    else:
        join(state, record)
