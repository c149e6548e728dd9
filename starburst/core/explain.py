"""Where a job stands and why, as a good colleague would say it; also before it is submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isinf

from starburst.core.decisions import usd, where
from starburst.core.jobs import JobRecord
from starburst.core.state import State
from starburst.domain.job import CloudChoice, Phase, Site
from starburst.domain.money import Money
from starburst.policy.waiting import hours

#: Says a scheduler time as people read it, e.g. "14:32".
Clock = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence and the numbers behind it."""

    job: str
    phase: str
    sentence: str
    #: When it leaves for the cloud; None if it does not.
    leaves_at: float | None = None
    #: Place among the queued jobs of its shape, from 1; None if not queued.
    position: int | None = None
    #: What a cloud run would cost by its estimated run time, and on what; None if no offer holds it.
    cloud_cost_usd: str | None = None
    offers: tuple[str, ...] = ()


def explain(state: State, record: JobRecord, clock: Clock) -> Explanation:
    """Where the job stands at `state.now`."""
    if record.phase is Phase.QUEUED:
        return _queued(state, record, clock)
    sentence = {
        Phase.OFFLOADING: _offloading,
        Phase.STARTING: _running,
        Phase.RUNNING: _running,
        Phase.STOPPING: _stopping,
    }.get(record.phase, _ended)(state, record, clock)
    return Explanation(record.id, record.phase.value, sentence)


def _queued(state: State, record: JobRecord, clock: Clock) -> Explanation:
    need = str(record.job.resources)
    ahead = _ahead(state, record)
    offers = state.fleet.price(record.job, state.fleet.offers.values())
    rule, wait_s = record.wait.get("rule", "its wait"), record.wait.get("wait_s")
    leaves = not isinf(record.deadline)
    if record.job.cloud is CloudChoice.ONLY:
        parts = ["waits for a machine in the cloud"]
    elif leaves:
        total = f" = {hours(float(str(wait_s)))}" if wait_s is not None else ""
        parts = [f"waits for {need} on the cluster until {clock(record.deadline)} ({rule}{total})"]
    else:
        parts = [f"waits for {need} on the cluster as long as it takes ({rule})"]
    if record.job.cloud is not CloudChoice.ONLY:
        parts.append(f"{ordinal(ahead + 1)} in line for {_short(record)}")
        if state.capacity.nodes and not state.capacity.ever(record.job):
            parts.append("no node or set of nodes of the cluster could ever hold it")
    if "lacks" in record.wait:
        parts.append(f"it would leave for the cloud, but {record.wait['lacks']}")
    names: tuple[str, ...] = ()
    cost = None
    if not isinstance(offers, str) and record.job.cloud is not CloudChoice.NEVER:
        runtime_s = state.runtime_s(record.job)
        cost = sum((state.fleet.rate(o).for_seconds(runtime_s) for o in offers), Money())
        names = tuple(offer.name for offer in offers)
        then = "then " if leaves else ""
        parts.append(f"would {then}cost about {cost} on {', '.join(dict.fromkeys(names))}")
    return Explanation(
        record.id,
        record.phase.value,
        "; ".join(parts),
        record.deadline if leaves else None,
        ahead + 1,
        str(cost.dollars) if cost is not None else None,
        names,
    )


def _ahead(state: State, record: JobRecord) -> int:
    key = (record.order_key, record.seq)
    shape = record.job.shape
    return sum(
        1
        for other in state.jobs.values()
        if other.phase is Phase.QUEUED
        and (other.order_key, other.seq) < key
        and other.job.shape == shape
        and other.job.cloud is not CloudChoice.ONLY
    )


def _short(record: JobRecord) -> str:
    resources = record.job.resources
    return (
        str(type(resources)(resources.gpus, gpu_type=resources.gpu_type))
        if resources.gpus
        else str(resources)
    )


def _offloading(state: State, record: JobRecord, clock: Clock) -> str:
    machines = [state.fleet.instances[slot.where] for slot in record.slots]
    what = ", ".join(f"{m.id} ({m.offer.name}, {usd(m.rate.micro_usd)}/h)" for m in machines)
    return f"leaves for the cloud: {what} asked for at {clock(machines[0].requested_at)} and not up yet"


def _running(state: State, record: JobRecord, clock: Clock) -> str:
    since = f"since {clock(record.started_at)}" if record.started_at is not None else "and is being started"
    waited = f"after a wait of {hours((record.first_started_at or state.now) - record.submitted_at)}"
    if record.site is Site.CLUSTER:
        home = ", home from the cloud" if record.returned else ""
        return f"runs on the cluster on {where(record.slots)} {since}, {waited}{home}"
    machines = [state.fleet.instances[slot.where] for slot in record.slots]
    cost = sum((m.cost(state.now) for m in machines), Money())
    rate = sum((m.rate for m in machines), Money())
    what = ", ".join(dict.fromkeys(m.offer.name for m in machines))
    line = f"runs in the cloud on {what} ({where(record.slots)}) {since} at {rate}/h, {cost} so far"
    if record.look_at is None:
        return line
    if record.look_at <= state.now:
        return f"{line}; comes home as soon as {_short(record)} are free on the cluster"
    return f"{line}; looked at for coming home at {clock(record.look_at)}"


def _stopping(state: State, record: JobRecord, clock: Clock) -> str:
    why = {"cancel": "its user cancelled it", "return": "it comes home from the cloud"}.get(
        record.stop_why, f"a machine of its gang is gone ({record.message})"
    )
    grace = hours(record.job.grace_s)
    return f"is being stopped on {where(record.slots)}: {why}; has {grace} from then to save its work"


def _ended(state: State, record: JobRecord, clock: Clock) -> str:
    at = f" at {clock(record.ended_at)}" if record.ended_at is not None else ""
    bill = f"; its cloud bill is {usd(record.cloud_micro_usd)}" if record.cloud_micro_usd else ""
    return f"{record.phase.value}{at}: {record.message}{bill}"


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, … 11th."""
    suffix = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"
