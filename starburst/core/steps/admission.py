"""Admission: a job enters the queue, gets a deadline, and leaves for the cloud or waits on if it cannot.

A wait becomes a launch as follows. `set_wait` sets the deadline; `expire` calls `leave` for every job that is
still queued then; `leave` checks offers, the cluster's permission and the caps, and moves the job to
OFFLOADING. At the end of the pack window `pack` (core/steps/offload.py) assigns instances and requests the
new ones.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isinf

from starburst.core.model.budget_values import Shortfall
from starburst.core.model.events import EditRequested, JobSubmitted, LeaveRuled
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import LeaveReason, NoOffer, OverBudget, Wait
from starburst.core.parts.feasibility import Prospects
from starburst.core.state import State
from starburst.core.steps.budget import amount, cheaper_at, cost_of, is_capped, short
from starburst.core.steps.prerequisites import follow, shut
from starburst.core.steps.retries import spent_on
from starburst.core.steps.start_refusals import is_shut
from starburst.core.steps.starvation import order_key
from starburst.core.steps.transitions import to
from starburst.domain.job import CloudChoice, Job, Phase, Site
from starburst.policy.caps import utc
from starburst.policy.forecast_bias import size_class
from starburst.policy.waiting import hours

#: Phases in which a job can be changed by its user.
EDITABLE = (Phase.QUEUED, Phase.HELD, Phase.BLOCKED)


def submitted(state: State, event: JobSubmitted) -> None:
    """Record a new job and admit it; a second submission of the same id is ignored."""
    job = event.job
    if job.id in state.jobs:
        state.ignore(event, "submitted before")
        return
    state.arrivals += 1
    submitted_at = state.now if event.submitted_at is None else min(event.submitted_at, state.now)
    record = JobRecord(job, state.arrivals, submitted_at, queued_at=state.now)
    state.jobs[job.id] = record
    state.load.submitted(state.size(job))
    state.touch(record)
    record.held = job.hold
    record.confined = job.confined
    follow(state, record, dict(event.ended))
    admit(state, record)


def admit(state: State, record: JobRecord) -> None:
    """Queue a job with a wait that begins now, or offload it at once.

    A held or blocked job stays out of the queue; a returned job never leaves at once.
    """
    if shut(state, record):
        return
    to(state, record, Phase.QUEUED, queued_at=state.now, message="")
    why = None if record.returned else _leaves_at_once(state, record.job)
    if why is not None:
        leave(state, record, why)
    else:
        set_wait(state, record)
        state.joining.append(record)


def ask_again(state: State, record: JobRecord) -> None:
    """Requeue a job after the pause that follows a start refused by its site; its deadline is kept.

    If the cluster refused it and the deadline has passed, it leaves for the cloud instead.
    """
    record.not_before = state.now
    if shut(state, record):
        return
    record.message = ""
    if isinf(record.deadline) and record.had_deadline:
        record.deadline = state.now  # no offer held it before; offers may have changed
    if record.deadline <= state.now and record.site is Site.CLUSTER:
        to(state, record, Phase.QUEUED)
        leave(state, record, LeaveReason.REFUSED)
    else:
        requeue(state, record)


def _leaves_at_once(state: State, job: Job) -> LeaveReason | None:
    """The reason to offload the job without a wait; None if it waits."""
    if job.cloud is CloudChoice.NEVER:
        return None
    if job.cloud is CloudChoice.ONLY:
        return LeaveReason.ONLY
    # Nodes without GPUs are no other job's: each job of an array is promised room of its own there.
    if state.settings.offload_cpu_only and not job.resources.gpus and not state.capacity.promise_plain(job):
        return LeaveReason.CPU_ONLY
    if state.settings.short_job_s and state.runtime_s(job) < state.settings.short_job_s:
        return LeaveReason.SHORT
    return None if state.capacity.ever(job) or not state.capacity.nodes else LeaveReason.TOO_BIG


def set_wait(state: State, record: JobRecord) -> None:
    """Set the deadline: now plus the wait that the user or the waiting policy gives."""
    job = record.job
    wait_s, rule = _wait_of(state, record)
    record.queued_at = state.now
    # Computed through the due time (deadline plus run time), as in the published simulator, so that exact
    # ties of deadlines and completions break the same way.
    runtime_s = state.runtime_s(job)
    record.deadline = (state.now + wait_s + runtime_s) - runtime_s
    source = state.run_times.source(job, runtime_s)
    wait = Wait(str(job.resources), None if isinf(wait_s) else wait_s, rule, runtime_s, source)
    record.wait = wait
    record.obstacle = None
    state.meter.expects(record, runtime_s)
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
        return inf, job.stays or "its starburst.io/cloud says never"
    if job.max_wait_s is not None and not record.returned:
        return job.max_wait_s, "its starburst.io/max-wait"
    wait_s, ask, factor = state.policy_wait_s(record)
    policy, own = state.waiting, state.queue_of(job).budget_percent
    whose = "" if own is None else f", P {own:g} % of queue {job.queue}"
    by = f"{policy.title}{state.run_times.correction(job) if policy.takes_runtime else ''}"
    rule = f"{by}: {policy.formula(factor, ask)}{whose}{_calibrated(state)}"
    if policy.wait_s(factor, ask) > wait_s:
        return wait_s, f"{rule}, but at most {hours(wait_s)}"
    return wait_s, rule


def _calibrated(state: State) -> str:
    """The multiplier of a calibrated budget and the share of P spent, as text for the decision's reason."""
    if not state.meter.calibrated:
        return ""
    multiplier = state.meter.multiplier
    spent, budget = state.meter.account.spent_percent, state.settings.budget_percent
    return f", calibrated ×{multiplier:.2g}: {spent:.2g} % of the {budget:g} % spent so far"


def join(state: State, record: JobRecord) -> None:
    """Add a job to the queue under its order key and register its deadline."""
    record.order_key = order_key(state, record)
    state.queue.add(record)
    state.meter.waits(record)
    state.walk.joined(record)
    state.set_deadline(record, record.deadline)
    if state.prospects is not None:
        state.prospects.suspect(record)
    if state.meter.calibrated:
        state.forecast.newcomers.append(record)
    if state.fleet.shares:
        state.fleet.spare.queued(record)


def withdraw(state: State, record: JobRecord) -> None:
    """Remove a job from the queue or from the list of joining jobs; no effect if it is in neither."""
    if record.id in state.queue:
        state.dequeue(record)
    elif record in state.joining:
        state.joining.remove(record)
    state.capped.pop(record.id, None)


def requeue(state: State, record: JobRecord) -> None:
    """Queue a job again after a lost, refused or stopped run; a wait that it was given earlier still applies.

    A job that was never given a wait, or that may run in the cloud only, leaves at once if it would on
    submission.
    """
    to(state, record, Phase.QUEUED)
    if record.awaits_volumes and shut(state, record):
        return
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


def edit_requested(state: State, event: EditRequested) -> None:
    """Change a job that waits; the wait that it has had counts towards a new one."""
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end:
        state.ignore(event, "no such job, or it is over")
        return
    if record.phase not in EDITABLE:
        state.decide(record.id, "not-edited", phase=record.phase.value)
        return
    changes = event.edit.changes
    is_queued = record.phase is Phase.QUEUED
    if is_queued:
        withdraw(state, record)
    record.job = replace(record.job, **changes)
    state.decide(record.id, "edited", changes=str(event.edit))
    state.touch(record)
    if record.wait is not None and changes.keys() - {"priority"}:
        _wait_from(state, record, record.queued_at)
        if not is_queued:  # it pauses after a refused start, at most until its deadline
            state.pauses.set(record.tries_at, record)
    if is_queued:
        requeue(state, record)


def _wait_from(state: State, record: JobRecord, begun_at: float) -> None:
    """Set the deadline as of a wait that began earlier; not in the past, nor in a pause after a cloud run."""
    set_wait(state, record)
    least = max(state.now, record.not_before) if record.site is Site.CLOUD else state.now
    record.deadline = max(least, record.deadline - (state.now - begun_at))
    record.queued_at = begun_at


def leave_ruled(state: State, event: LeaveRuled) -> None:
    """Record whether the cluster lets a job leave (`why` is "" if so).

    A queued job that cannot leave and has no deadline tries again at once.
    """
    record = state.jobs.get(event.job_id)
    if record is None or record.phase.is_end:
        state.ignore(event, "no such job, or it is over")
        return
    if record.confined == event.why:
        return
    record.confined = event.why
    state.touch(record)
    if record.phase is Phase.QUEUED and record.obstacle is not None and isinf(record.deadline):
        state.set_deadline(record, state.now)


def expire(state: State) -> bool:
    """Offload every job whose deadline has passed; returns whether there was one."""
    any_due = False
    while (job_id := state.deadlines.pop_due(state.now)) is not None:
        record = state.jobs[job_id]
        waited_for = LeaveReason.REFUSED if is_shut(state) else LeaveReason.EXPIRED
        leave(state, record, LeaveReason.ONLY if record.job.cloud is CloudChoice.ONLY else waited_for)
        any_due = True
    return any_due


def give_up(state: State, prospects: Prospects) -> None:
    """Offload queued jobs that, by estimates, cannot start before their deadline (setting hopeless=leave)."""
    for record in prospects.hopeless(state.capacity, state.now):
        leave(state, record, LeaveReason.HOPELESS)


def leave_dear(state: State) -> None:
    """Offload queued jobs whose predicted wait is longer than the present price allows (calibrated budget).

    The factor of the wait is the reciprocal of a price of delay. All are predicted anew whenever a job has
    joined the queue, in order; who waits is charged its wait, so that the price rises from one to the next.
    """
    newcomers, state.forecast.newcomers = state.forecast.newcomers, []
    if not any(record.id in state.queue for record in newcomers):
        return
    factor, biases = state.factor, state.meter.biases(state.queue.jobs())
    for record, least_s in state.forecast.waits(state.now):
        wait_s, known = least_s * biases[size_class(record.job.resources.gpus)], record.wait
        if known is None:  # it was to leave at once
            continue
        if known.predicted_s is None:
            state.meter.learn(known.runtime_s, wait_s)
            factor = state.factor
        is_dear = _is_dear(state, record, wait_s, factor)
        wait = known.predict(state.now, state.now - record.queued_at, wait_s, least_s)
        if wait is not known:
            record.wait = wait
            state.touch(record)
            state.meter.predict(record, state.now + wait_s)  # it is charged if it cannot leave, too
        if is_dear:
            leave(state, record, LeaveReason.DEAR)
        if wait is not known or record.id not in state.queue:
            factor = state.factor


def _is_dear(state: State, record: JobRecord, wait_s: float, factor: float) -> bool:
    """Whether the job may leave, and would start after its deadline or wait longer than its price allows."""
    if record.job.cloud is not CloudChoice.AUTO or record.obstacle is not None or isinf(record.deadline):
        return False
    allowed_s = inf if record.job.max_wait_s is not None else state.policy_wait_s(record, factor)[0]
    return wait_s > min(record.deadline - state.now, allowed_s)


def leave_exhausted(state: State) -> None:
    """Offload as many waiting jobs as an exhausted account demands, the cheapest in the cloud first."""
    excess = state.meter.excess
    if excess:
        waiting = [state.jobs[job_id] for job_id in state.meter.waiting]
        waiting.sort(key=lambda r: (state.size(r.job) * state.given_runtime_s(r), r.seq))
        for record in waiting[:excess]:
            leave(state, record, LeaveReason.EXHAUSTED)


def trim(state: State) -> None:
    """Offload the jobs at the tail, as the queue is longer than Q_max; jobs with cloud=never are skipped."""
    for record in state.queue.beyond(state.queue_limit, lambda r: r.job.cloud is not CloudChoice.NEVER):
        leave(state, record, LeaveReason.QUEUE_FULL)


def leave(state: State, record: JobRecord, why: LeaveReason) -> None:
    """Move a job to OFFLOADING, to be packed with the jobs that leave in the same pack window.

    A job stays queued if no offer holds it, its cluster does not let it leave, or a cap has too little left.
    For an early departure (queue full, hopeless) its wait then goes on unchanged.
    """
    offers = state.fleet.price(record.job, state.fleet.available(state.now))
    if isinstance(offers, str):
        if not why.is_early:  # an early leaver keeps its deadline
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
    record.left_micro_usd = spent_on(state, record).micro_usd


def keep(state: State, record: JobRecord, lacks: str) -> None:
    """Keep a due job queued because no offer holds it; its deadline is the end of the next offer pause."""
    retry_at = state.fleet.retry_at(record.job, state.now)
    if retry_at is not None:
        lacks = "every offer that holds it is paused after a failed launch"
    else:
        lacks = state.fleet.bar(record.job) or lacks
    if _meets(record, lacks):
        state.decide(record.id, "no-offer", lacks=lacks, retry_at=retry_at)
    _wait_on(state, record, inf if retry_at is None else retry_at)


def confine(state: State, record: JobRecord) -> None:
    """Keep a due job queued, without a deadline, because its cluster does not let it leave."""
    if _meets(record, record.confined):
        state.decide(record.id, "no-offer", lacks=record.confined, retry_at=None)
    _wait_on(state, record, inf)


def _meets(record: JobRecord, lacks: str) -> bool:
    """Record why the job cannot leave; returns whether the reason differs from the recorded one."""
    if record.obstacle is not None and record.obstacle.text == lacks:
        return False
    record.obstacle = NoOffer(lacks)
    return True


def wait_for_money(state: State, record: JobRecord, lacking: Shortfall) -> None:
    """Keep a due job queued because a cap has less left than the job costs.

    It tries again when the cap's window ends, or before that when money is released
    (core/steps/budget_enforcement.py), or an offer is there that it can pay for. The decision is logged once
    per cap and window.
    """
    cap, until, cost = lacking.standing.cap, lacking.standing.end, lacking.cost
    known = record.obstacle
    if not isinstance(known, OverBudget) or (known.cap, known.until) != (cap.name, until):
        left = amount(lacking.left)
        most = "" if isinf(cost) else f"may cost up to {amount(cost)} by the end of that {cap.per}"
        costs = most or "would cost an unknown sum"
        then = f"the next {cap.per} begins at {utc(until)}"
        lacks = f"of {cap.title} {left} was left, and it {costs}; {then}"
        record.obstacle = OverBudget(cap.name, until, cost, lacks)
        known_cost = None if isinf(cost) else cost
        state.decide(record.id, "capped", cap=cap.name, cost=known_cost, left=left.micro_usd, lacks=lacks)
    state.capped[record.id] = cost
    _wait_on(state, record, min(until, cheaper_at(state, record)))


def _wait_on(state: State, record: JobRecord, until: float) -> None:
    """Queue the job with a new deadline; until then it may still start on the cluster."""
    to(state, record, Phase.QUEUED, deadline=until)
    if record.awaits_volumes and shut(state, record):
        return
    if record.id in state.queue or record.job.cloud is CloudChoice.ONLY:
        state.set_deadline(record, record.deadline)  # cloud-only jobs stay out of the cluster's queue
    else:
        join(state, record)
