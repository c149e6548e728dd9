"""Explanations of a job's phase and prospects in one sentence, also for a job that is not submitted yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf

from starburst.core.model.actions import places
from starburst.core.model.decisions import WHY_OFFLOAD, usd, where
from starburst.core.model.events import JobSubmitted
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import OverBudget, StopReason
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.scheduler import Scheduler
from starburst.core.state import State
from starburst.core.steps.machines import is_too_dear
from starburst.core.steps.offload import pack_at
from starburst.core.steps.prerequisites import pause_after_failure
from starburst.core.steps.start_refusals import is_shut
from starburst.domain.cloud import Offer
from starburst.domain.job import CloudChoice, Job, Phase, Site
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.forecast_bias import size_class
from starburst.policy.waiting import HOUR_S, hours

#: Why a run is being stopped, for reasons with a fixed text.
WHY_STOP = {
    StopReason.CANCEL: "its user cancelled it",
    StopReason.RETURN: "it comes home from the cloud",
    StopReason.CAP: "what may be spent on it is spent",
    StopReason.SUSPEND: "its user suspended it",
    StopReason.REQUEUE: "its user has it queued again",
}

#: Largest number of prerequisite jobs named in a sentence.
SOME = 5
#: Formats a scheduler time, e.g. "14:32".
Clock = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence and the numbers behind it."""

    job: str
    phase: str
    sentence: str
    #: When the job leaves for the cloud, or tries to; None if it does not.
    leaves_at: float | None = None
    #: Place among the queued jobs of its shape, from 1; None if it is not in the cluster's queue.
    position: int | None = None
    #: Cost of a cloud run of the estimated run time, and the offers; None if no offer holds the job.
    cloud_cost: Money | None = None
    offers: tuple[str, ...] = ()


def place_in_line(state: State, record: JobRecord) -> int:
    """Place of a queued job among those of its shape, from 1."""
    key, shape = (record.order_key, record.seq), record.job.shape
    return 1 + sum(
        other.phase is Phase.QUEUED
        and (other.order_key, other.seq) < key
        and other.job.shape == shape
        and other.job.cloud is not CloudChoice.ONLY
        for other in state.jobs.values()
    )


def needs_whole(state: State) -> bool:
    """Whether a queued job is explained by all jobs in `state`, not by itself and its prerequisites alone."""
    return state.meter.calibrated or state.settings.order in DISCIPLINES


def explain(
    state: State,
    record: JobRecord,
    clock: Clock,
    sees: Callable[[str], bool] = lambda _: True,
    place: Callable[[State, JobRecord], int] = place_in_line,
) -> Explanation:
    """Explain the job at `state.now`; other jobs are mentioned only if the reader `sees` their queues."""
    if record.phase is Phase.QUEUED:
        return _queued(state, record, clock, place)
    if record.phase in (Phase.HELD, Phase.BLOCKED):
        return Explanation(record.id, record.phase.value, _kept_out(state, record, clock, sees))
    if record.phase is Phase.OFFLOADING:
        sentence = _offloading(state, record, clock)
    elif record.phase is Phase.STOPPING:
        sentence = _stopping(state, record)
    elif record.alive:
        sentence = _running(state, record, clock)
    else:
        sentence = ended(record.phase.value, record.ended_at, record.message, record.cloud_micro_usd, clock)
    return Explanation(record.id, record.phase.value, sentence)


def foretell(
    scheduler: Scheduler, jobs: Sequence[Job], clock: Clock, ended: tuple[tuple[str, str], ...] = ()
) -> list[Explanation]:
    """Explain what would happen to jobs submitted together now. They stay in `scheduler`: pass a copy.

    `ended`: (id, phase) of prerequisite jobs that are no longer in the scheduler's state.
    """
    state = scheduler.state
    scheduler.handle([JobSubmitted(job, ended) for job in jobs], state.now)
    texts = []
    for job in jobs:
        record = state.jobs[job.id]
        settled = record.phase in (Phase.HELD, Phase.BLOCKED, Phase.QUEUED) or record.phase.is_end
        texts.append(explain(state, record, clock) if settled else _at_once(state, record))
    return texts


def _at_once(state: State, record: JobRecord) -> Explanation:
    """Explain a job that would start, or leave for the cloud, at submission."""
    if record.phase is not Phase.OFFLOADING:
        sentence = f"would start at once on the cluster on {where(record.slots)}"
        return Explanation(record.id, record.phase.value, sentence)
    decision = next(
        (d for d in state.changes.decisions if d.subject == record.id and d.kind == "offloaded"), None
    )
    why = "" if decision is None else f": {WHY_OFFLOAD[str(decision.numbers['why'])](decision.numbers)}"
    offers = [machine.offer for machine in _machines(state, record)]
    cost, price = _price(state, record.job, offers)
    return Explanation(
        record.id,
        record.phase.value,
        f"would leave for the cloud at once{why}; would cost {price}",
        cloud_cost=cost,
        offers=tuple(offer.name for offer in offers),
    )


def ended(phase: str, at: float | None, message: str, micro_usd: int, clock: Clock) -> str:
    """How a job ended, and its cloud bill."""
    when = f" at {clock(at)}" if at is not None else ""
    bill = f"; its cloud bill is {usd(micro_usd)}" if micro_usd else ""
    if message.startswith(phase):
        return f"{message}{when}{bill}"
    return f"{phase}{when}: {message}{bill}"


def _queued(
    state: State, record: JobRecord, clock: Clock, place: Callable[[State, JobRecord], int]
) -> Explanation:
    job = record.job
    leaves_at = record.deadline if state.fleet.offers and not isinf(record.deadline) else None
    in_line = job.cloud is not CloudChoice.ONLY
    never_fits = bool(state.capacity.nodes) and in_line and not state.capacity.ever(job)
    offers = state.fleet.price(job, state.fleet.offers.values())
    cost: Money | None = None
    names: tuple[str, ...] = ()
    position = place(state, record) if in_line else None
    if job.cloud is CloudChoice.AUTO and never_fits and isinstance(offers, str):
        nowhere = "which no site has: the cluster could not hold it even if empty"
        parts = [f"waits for {_need(job)}, {nowhere}, and {offers}"]
    else:
        parts = [_wait(record, clock, has_offers=bool(state.fleet.offers))]
        if position is not None:
            parts.append(f"{ordinal(position)} in line for {_gpus(job.resources)}")
            parts += _discipline(state, job)
            if state.passed.nodes and state.passed.job_id == record.id:
                parts.append(f"passed too often, so {', '.join(state.passed.nodes)} take no other job")
            parts += _refused(state, record, clock)
        if never_fits:
            parts.append("the cluster could not hold it even if it were empty")
        if job.cloud is not CloudChoice.NEVER and (state.fleet.offers or record.wait is None):
            parts += _lack(record, offers, clock)
            if not isinstance(offers, str) and not record.confined:
                cost, price = _price(state, job, offers)
                names = tuple(offer.name for offer in offers)
                parts.append(f"would then cost {price}" if leaves_at else f"the cloud would cost {price}")
                parts += _price_of_delay(state, record, cost)
    return Explanation(record.id, record.phase.value, "; ".join(parts), leaves_at, position, cost, names)


def _kept_out(state: State, record: JobRecord, clock: Clock, sees: Callable[[str], bool]) -> str:
    seen = [name for name in record.awaits if sees(state.jobs[name].job.queue)]
    if record.phase is Phase.BLOCKED and seen:
        stand = ", ".join(f"{name} is {state.jobs[name].phase.value}" for name in seen[:SOME])
        more = f" and {len(seen) - SOME} more" if len(seen) > SOME else ""
        return f"{record.message}; {stand}{more}"
    if record.phase is Phase.BLOCKED and record.not_before > state.now:
        return _pauses(state, record, clock)
    return f"{record.message}; since {clock(record.queued_at)}"


def _pause_after_failure(state: State, record: JobRecord) -> str:
    """The pause of a job whose command failed, with the bound on what cloud runs that fail soon may cost."""
    bound = state.settings.max_failing
    most = "" if bound is None else f" of at most {bound} (cloud.max_usd_on_failures)"
    return f"{pause_after_failure(record)}{most if record.failing_micro_usd else ''}"


def _pauses(state: State, record: JobRecord, clock: Clock) -> str:
    """The pause of a job after a failed command or a refused start."""
    if not record.refusal:
        return f"{_pause_after_failure(state, record)}; until {clock(record.not_before)}"
    times = f" {record.refusals} times in a row, at last" if record.refusals > 1 else ""
    if record.deadline < record.not_before:
        then = f"it leaves for the cloud at {clock(record.deadline)}, if it can"
    else:
        then = f"it is tried again at {clock(record.not_before)}"
    return f"was not started{times}: {record.refusal}; {then}"


def _wait(record: JobRecord, clock: Clock, *, has_offers: bool) -> str:
    """What the job waits for, how long, and by which rule."""
    if record.job.cloud is CloudChoice.ONLY:
        return "waits for a machine in the cloud"
    need = f"waits for {_need(record.job)} on the cluster"
    if record.wait is None:  # a job that leaves without a wait
        return need
    rule, wait_s = record.wait.rule, record.wait.wait_s
    if not has_offers and record.job.cloud is not CloudChoice.NEVER:
        return f"{need} as long as it takes (the cloud has no offers)"
    total = "" if wait_s is None else f" = {hours(wait_s)}"
    if record.obstacle is not None:
        return f"{need}, though its wait is over ({rule}{total})"
    if isinf(record.deadline):
        return f"{need} as long as it takes ({rule})"
    return f"{need} until {clock(record.deadline)} ({rule}{total})"


def _lack(record: JobRecord, offers: Sequence[Offer] | str, clock: Clock) -> list[str]:
    """Why a due job has not left for the cloud, or why it will not be able to at its deadline."""
    if record.obstacle is not None:
        obstacle = record.obstacle
        named = isinstance(obstacle, OverBudget) and obstacle.until <= record.deadline  # the time, in UTC
        again = "" if named or isinf(record.deadline) else f"; it tries again at {clock(record.deadline)}"
        return [f"it should leave for the cloud, but {obstacle.text}{again}"]
    stays = offers if isinstance(offers, str) else record.confined
    if stays and not isinf(record.deadline):
        return [f"then it waits on, since {stays}"]
    return []


def _refused(state: State, record: JobRecord, clock: Clock) -> list[str]:
    """Refusals by the cluster: of the job's last start, or of all starts."""
    texts = [f"its last start was refused: {record.refusal}"] if record.refusal else []
    if is_shut(state):
        known = state.refusals
        since, words = clock(known.first_at), known.message
        again = clock(max(state.now, known.next_at))
        texts.append(
            f"the cluster has refused every start since {since} ({words}); it is tried again at {again}"
        )
    return texts


def _discipline(state: State, job: Job) -> list[str]:
    """Why, under a discipline, other jobs may start first or capacity stays free."""
    order = DISCIPLINES.get(state.settings.order)
    if order is None:
        return []
    if order.keeps_room and state.capacity.place(job) is not None:
        return [f"there is room for it, but under {order.title} {order.first}"]
    return [f"under {order.title} {order.first}"]


def _need(job: Job) -> str:
    """The job's total resources and, for a gang, its tasks."""
    if len(job.tasks) == 1:
        return str(job.resources)
    return f"{job.resources} ({_times(Counter(map(_gpus, job.tasks)), ' + ')})"


def _times(counts: Counter[str], between: str) -> str:
    """Names with their counts: "2 × p3.8xlarge and p3.2xlarge"."""
    return between.join(f"{n} × {name}" if n > 1 else name for name, n in counts.items())


def _gpus(resources: Resources) -> str:
    """The GPUs of a demand as text, or the whole demand if it has none."""
    return str(Resources(resources.gpus, gpu_type=resources.gpu_type) if resources.gpus else resources)


def _price(state: State, job: Job, offers: Sequence[Offer]) -> tuple[Money, str]:
    """Cost of a run on one instance of each of these offers, as amount and as text."""
    runtime_s = state.runtime_s(job)
    cost = sum((state.fleet.rate(offer).for_seconds(runtime_s) for offer in offers), Money())
    names = _times(Counter(offer.title for offer in offers), " and ")
    unknown = any(offer.price_per_hour is None for offer in offers)
    guess = ", whose price is unknown and taken for the dearest" if unknown else ""
    return cost, f"about {cost} on {names}{guess}"


def _price_of_delay(state: State, record: JobRecord, cost: Money) -> list[str]:
    """Under a calibrated budget: what an hour of the job's delay is worth, beside what its cloud run costs.

    A job may wait until its delay is worth as much as its cloud run: the price is cost / wait.
    """
    free_to_go = record.job.cloud is CloudChoice.AUTO and record.obstacle is None
    if not state.meter.calibrated or not free_to_go or record.id not in state.queue:
        return []
    _, ask, factor = state.policy_wait_s(record)
    wait_s = state.waiting.wait_s(factor, ask)
    price = Money(round(cost.micro_usd * HOUR_S / wait_s)) if wait_s > 0 else None
    worth = "" if price is None else f"an hour of its delay is worth {price} here today; "
    bias = state.meter.biases(state.queue.jobs())[size_class(record.job.resources.gpus)]
    predicted = hours(state.forecast.wait_s(record, state.now) * bias)
    return [f"{worth}leaving now costs {cost}, predicted start in {predicted}"]


def _machines(state: State, record: JobRecord) -> list[InstanceRecord]:
    """The instances of a cloud job, each once."""
    return [state.fleet.instances[name] for name in places(record.slots)]


def _offloading(state: State, record: JobRecord, clock: Clock) -> str:
    machines = _machines(state, record)
    if not machines:
        when = clock(pack_at(state))
        return f"leaves for the cloud; machines are chosen at {when}, for all who leave by then"
    what = ", ".join(f"{m.id} ({m.offer.title}, {m.rate}/h)" for m in machines)
    are = "are" if len(machines) > 1 else "is"
    if state.keeps_machines(record):
        until = f"until {clock(record.not_before)} {what} {are} kept for it"
        return f"{_pause_after_failure(state, record)}; {until}"
    up_at = max(m.requested_at + state.fleet.boot_s(m.offer) for m in machines)
    eta = f", expected at about {clock(up_at)}" if up_at > max(state.now, machines[0].requested_at) else ""
    late = f"; held up: {record.stall}" if record.stall else eta
    return (
        f"leaves for the cloud: {what}, requested at {clock(machines[0].requested_at)}, {are} coming up{late}"
    )


def _running(state: State, record: JobRecord, clock: Clock) -> str:
    since = f"runs since {clock(record.started_at)}" if record.started_at is not None else "is being started"
    waited_s = (record.first_started_at or state.now) - record.submitted_at
    first = f", {hours(waited_s)} after it was submitted" if waited_s >= 1 and not record.returned else ""
    if record.ends_at is not None:
        first += f", and by its own account until about {clock(record.ends_at)}"
    if record.site is Site.CLUSTER:
        home = ", home from the cloud" if record.returned else ""
        held_up = f"; held up: {record.stall}" if record.stall else ""
        if record.refusal and not record.stall:
            held_up = f"; its last start was refused: {record.refusal}"
        return f"{since} on the cluster on {where(record.slots)}{home}{first}{held_up}"
    machines = _machines(state, record)
    cost = sum((machine.cost(state.now) for machine in machines), Money())
    rate = sum((machine.present_rate for machine in machines), Money())
    what = ", ".join(f"{machine.id} ({machine.offer.title})" for machine in machines)
    held_up = f"; held up: {record.stall}" if record.stall else ""
    line = f"{since} in the cloud on {what}{first}; {cost} so far at {rate}/h{held_up}"
    if record.moving:
        targets = [state.fleet.instances[name] for name in dict.fromkeys(s.where for s in record.moving)]
        there = ", ".join(f"{machine.id} ({machine.offer.title})" for machine in targets)
        return f"{line}; moves to {there} as soon as all of that is up"
    if record.look_at is None:
        return line
    if record.look_at <= state.now:
        opens = "the cluster starts jobs again and " if is_shut(state) else ""
        room = f"there is room for {_gpus(record.job.resources)} on the cluster"
        return f"{line}; comes home as soon as {opens}{room}"
    return f"{line}; may come home from {clock(record.look_at)} on, if that pays and there is room"


def _stopping(state: State, record: JobRecord) -> str:
    why = _why_stopping(state, record)
    return f"{why}; held up: {record.stall}" if record.stall else why


def _why_stopping(state: State, record: JobRecord) -> str:
    stopped = f"is being stopped on {where(record.slots)}"
    why = None if record.stop_why is None else WHY_STOP.get(record.stop_why)
    if record.stop_why is StopReason.MOVE:
        why = f"it moves to {where(record.moving)}" if record.moving else "what it was to move to is lost"
    if record.stop_why is StopReason.CAP:
        here = (state.fleet.instances.get(name) for name in places(record.slots))
        why = next((f"{it.id} is too dear" for it in here if it and is_too_dear(state, it)), why)
    if record.no_grace:
        return f"{stopped}: {why}, at once"
    if why is None:
        return f"{stopped}: a machine of its gang is gone"
    return f"{stopped}: {why}; it has {hours(state.grace_s(record.job))} to save its work"


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, … 11th."""
    suffix = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"
