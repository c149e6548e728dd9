"""In and out of the queue: how long a job may wait, when it leaves for the cloud, and what if it cannot."""

from __future__ import annotations

from math import inf, isinf

from starburst.core.model.events import JobSubmitted, LeaveRuled
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import LeaveReason, NoOffer, OverBudget, Wait
from starburst.core.state import State
from starburst.core.steps.budget import Lacking, amount, cost_of, is_capped, short
from starburst.core.steps.prerequisites import follow, shut
from starburst.core.steps.start_refusals import is_shut
from starburst.core.steps.transitions import to
from starburst.domain.job import CloudChoice, Job, Phase, Site
from starburst.policy.caps import utc
from starburst.policy.fair import fair_key
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
    record.held = job.hold
    record.confined = job.confined
    follow(state, record, dict(event.ended))
    admit(state, record)


def admit(state: State, record: JobRecord) -> None:
    """Into the queue with a wait that begins now, or away at once; unless something keeps it out."""
    if shut(state, record):
        return
    to(state, record, Phase.QUEUED, queued_at=state.now, message="")
    why = None if record.returned else _leaves_at_once(state, record.job)
    if why is not None:
        leave(state, record, why)
    else:
        set_wait(state, record)
        state.joining.append(record)


def unblock(state: State) -> None:
    """Who has paused after a failure tries again."""
    while (job_id := state.pauses.pop_due(state.now)) is not None:
        record = state.jobs[job_id]
        if record.refusal:
            _ask_again(state, record)
        else:
            admit(state, record)


def _ask_again(state: State, record: JobRecord) -> None:
    """Whom its site would not start queues again, with what is left of its wait; if none is, it leaves."""
    record.not_before = state.now
    if shut(state, record):
        return
    record.message = ""
    if isinf(record.deadline) and record.had_deadline:
        record.deadline = state.now  # no offer would have it: one may have come since
    if record.deadline <= state.now and record.site is Site.CLUSTER:
        to(state, record, Phase.QUEUED)
        leave(state, record, LeaveReason.REFUSED)
    else:
        requeue(state, record)


def _leaves_at_once(state: State, job: Job) -> LeaveReason | None:
    """Why the job does not wait at all; None if it does."""
    if job.cloud is CloudChoice.NEVER:
        return None
    if job.cloud is CloudChoice.ONLY:
        return LeaveReason.ONLY
    if state.settings.offload_cpu_only and not job.resources.gpus:
        return LeaveReason.CPU_ONLY
    if state.settings.short_job_s and state.runtime_s(job) < state.settings.short_job_s:
        return LeaveReason.SHORT
    return None if state.capacity.ever(job) or not state.capacity.nodes else LeaveReason.TOO_BIG


def set_wait(state: State, record: JobRecord) -> None:
    """Give a job its waiting deadline, counted from now."""
    job = record.job
    wait_s, rule = _wait_of(state, record)
    record.queued_at = state.now
    # By way of when it is due, as published: so exact ties of deadlines and completions fall the same way.
    runtime_s = state.runtime_s(job)
    record.deadline = (state.now + wait_s + runtime_s) - runtime_s
    wait = record.wait = Wait(
        need=str(job.resources),
        wait_s=None if isinf(wait_s) else wait_s,
        rule=rule,
        runtime_s=runtime_s,
        estimated_by="user" if job.runtime_estimate_s is not None else "mean of past jobs",
    )
    record.obstacle = None
    state.decide(
        record.id,
        "waits",
        need=wait.need,
        wait_s=wait.wait_s,
        rule=wait.rule,
        runtime_s=wait.runtime_s,
        estimated_by=wait.estimated_by,
    )


def _wait_of(state: State, record: JobRecord) -> tuple[float, str]:
    job = record.job
    if job.cloud is CloudChoice.NEVER:
        return inf, "its starburst.io/cloud says never"
    if job.max_wait_s is not None and not record.returned:
        return job.max_wait_s, "its starburst.io/max-wait"
    ask = Ask(state.size(job), job.resources.gpus, state.runtime_s(job), record.returned)
    policy, factor, own = state.waiting, state.factor, state.queue_of(job).budget_percent
    if own is not None:  # all factors are proportional to P
        factor *= own / state.settings.budget_percent
    wait_s = policy.wait_s(factor, ask)
    whose = "" if own is None else f", P {own:g} % of queue {job.queue}"
    rule = f"{policy.title}: {policy.formula(factor, ask)}{whose}{_calibrated(state)}"
    if wait_s > state.settings.max_wait_s:
        return state.settings.max_wait_s, f"{rule}, but at most {hours(state.settings.max_wait_s)}"
    return wait_s, rule


def _calibrated(state: State) -> str:
    """What the control of the budget has done to the factor, for the reason."""
    if not state.meter.calibrated:
        return ""
    multiplier = state.meter.multiplier(state.load.load)
    spent, budget = state.meter.account.spent_percent, state.settings.budget_percent
    return f", calibrated ×{multiplier:.2g}: {spent:.2g} % of the {budget:g} % spent so far"


def join(state: State, record: JobRecord) -> None:
    """Take a place in the queue."""
    record.order_key = state.order(
        Candidate(
            record.seq, state.runtime_s(record.job), record.deadline, record.job.priority, _tag(state, record)
        )
    )
    state.queue.add(record)
    state.meter.waits(record)
    state.walk.joined(record)
    state.set_deadline(record, record.deadline)
    if state.prospects is not None:
        state.prospects.suspect(record)


def _tag(state: State, record: JobRecord) -> float:
    """The job's key under the order "fair"; who comes back keeps the tag it was given."""
    if state.settings.order != "fair":
        return 0.0
    job = record.job
    queue = state.queue_of(job)
    if record.tag is None:
        gpu_s = state.size(job) * state.runtime_s(job)
        record.tag = state.tags.arrive(job.queue, gpu_s, queue.share, alone=not len(state.queue))
    return fair_key(record.tag, queue.priority)


def withdraw(state: State, record: JobRecord) -> None:
    """Take a job out of the queue, or from among those that join it, if it is there."""
    if record.id in state.queue:
        state.dequeue(record)
    elif record in state.joining:
        state.joining.remove(record)
    state.capped.pop(record.id, None)


def requeue(state: State, record: JobRecord) -> None:
    """A job whose run is gone wants another one; who was never given a wait leaves at once again."""
    to(state, record, Phase.QUEUED)
    waited = record.wait is not None
    why = None if waited and record.job.cloud is not CloudChoice.ONLY else _leaves_at_once(state, record.job)
    if why is not None:
        leave(state, record, why)
        return
    if not waited:
        set_wait(state, record)
    state.joining.append(record)
    if is_capped(record):
        state.capped[record.id] = cost_of(record)


def leave_ruled(state: State, event: LeaveRuled) -> None:
    """Who may leave after all tries again, if it was kept here for that."""
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end or record.confined == event.why:
        return
    record.confined = event.why
    state.touch(record)
    if record.phase is Phase.QUEUED and record.obstacle is not None and isinf(record.deadline):
        state.set_deadline(record, state.now)


def expire(state: State) -> bool:
    """Send off every job whose wait is over; whether there was one."""
    any_due = False
    while (job_id := state.deadlines.pop_due(state.now)) is not None:
        leave(state, state.jobs[job_id], LeaveReason.REFUSED if is_shut(state) else LeaveReason.EXPIRED)
        any_due = True
    return any_due


def give_up(state: State) -> None:
    """Who cannot start before its wait ends leaves at once, if the settings say so."""
    if state.prospects is not None:
        for record in state.prospects.hopeless(state.capacity, state.now):
            leave(state, record, LeaveReason.HOPELESS)


def trim(state: State) -> None:
    """While the queue is longer than Q_max its last job leaves; one that may not leave is passed over."""
    limit = state.settings.queue_limit
    if limit is not None and len(state.queue) > limit:
        for record in state.queue.beyond(limit, lambda r: r.job.cloud is not CloudChoice.NEVER):
            leave(state, record, LeaveReason.QUEUE_FULL)


def leave(state: State, record: JobRecord, why: LeaveReason) -> None:
    """Off to the cloud with all who leave about now, or, if no offer will have it, back to waiting."""
    offers = state.fleet.price(record.job, state.fleet.available(state.now))
    if isinstance(offers, str):
        if not why.is_early:  # else its own wait goes on
            keep(state, record, offers)
        return
    if record.confined:
        if not why.is_early:
            confine(state, record)
        return
    lacking = short(state, record, offers, {}) if state.settings.caps else None
    if lacking is not None:
        if not why.is_early:
            wait_for_money(state, record, lacking)
        return
    if record.id in state.queue:
        state.dequeue(record)
    to(state, record, Phase.OFFLOADING, leaving=why)
    if why in (LeaveReason.EXPIRED, LeaveReason.HOPELESS):
        state.meter.cut_short(state.load.load)


def keep(state: State, record: JobRecord, lacks: str) -> None:
    """It should leave but cannot: it waits on, and tries again when an offer's pause ends."""
    retry_at = state.fleet.retry_at(record.job, state.now)
    if retry_at is not None:
        lacks = "every offer that holds it is paused after a failed launch"
    if _meets(record, lacks):
        state.decide(record.id, "no-offer", lacks=lacks, retry_at=retry_at)
    _wait_on(state, record, inf if retry_at is None else retry_at)


def confine(state: State, record: JobRecord) -> None:
    """It should leave and may not: it waits on until its cluster says otherwise."""
    if _meets(record, record.confined):
        state.decide(record.id, "no-offer", lacks=record.confined, retry_at=None)
    _wait_on(state, record, inf)


def _meets(record: JobRecord, lacks: str) -> bool:
    """Note why the job cannot leave; whether that is another reason than before."""
    if record.obstacle is not None and record.obstacle.text == lacks:
        return False
    record.obstacle = NoOffer(lacks)
    return True


def wait_for_money(state: State, record: JobRecord, lacking: Lacking) -> None:
    """It should leave, but a cap has less left than it costs: it tries again when the cap's window ends, or
    money is released (core/steps/budget_enforcement.py). Said once per cap and window.
    """
    cap, until, cost = lacking.standing.cap, lacking.standing.end, lacking.cost
    known = record.obstacle
    if not isinstance(known, OverBudget) or (known.cap, known.until) != (cap.name, until):
        left = amount(lacking.left)
        costs = "cost nobody knows what" if isinf(cost) else f"cost {amount(cost)} until {utc(until)}"
        lacks = (
            f"it would {costs}, and of {cap.title} {left} was left; the next {cap.per} begins at {utc(until)}"
        )
        record.obstacle = OverBudget(cap.name, until, cost, lacks)
        known_cost = None if isinf(cost) else cost
        state.decide(record.id, "capped", cap=cap.name, cost=known_cost, left=left.micro_usd, lacks=lacks)
    state.capped[record.id] = cost
    _wait_on(state, record, until)


def _wait_on(state: State, record: JobRecord, until: float) -> None:
    """It leaves for the cloud then; until then it takes what room there is."""
    to(state, record, Phase.QUEUED, deadline=until)
    if record.id in state.queue or record.job.cloud is CloudChoice.ONLY:
        state.set_deadline(record, record.deadline)  # cloud-only jobs stay out of the cluster's queue
    else:
        join(state, record)
