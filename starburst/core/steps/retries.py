"""Retries of failed commands: the pause before each, and the bound on what runs that fail soon may cost.

In the cloud a job keeps its machines while it pauses for no longer than others would take to come up: renting
others would cost as much, and take longer. After a longer pause a try rents machines anew. Runs that fail
within `SOON_S` of their start, one after the other, are most likely a broken command: their pauses grow up to
an hour, and once they have cost `max_failing` the job has failed, whatever retries it has left.
"""

from __future__ import annotations

from starburst.core.model.actions import places
from starburst.core.model.decisions import where
from starburst.core.model.events import RunEnd, RunEnded
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import StopReason
from starburst.core.state import State
from starburst.domain.job import Site
from starburst.domain.money import Money
from starburst.policy.backoff import MOST_RENTED_S, MOST_S, pause_s

#: A run that fails within so many real seconds of its start failed soon.
SOON_S = 300.0


def spent_on(state: State, record: JobRecord) -> Money:
    """What a job has cost in the cloud up to now: bills of ended instances, and its shares of the others."""
    if not record.open_bills:
        return Money(record.cloud_micro_usd)
    machines = [machine for machine in state.fleet.instances.values() if record.id in machine.billed_to]
    return Money(record.cloud_micro_usd + sum(machine.shares(state.now)[record.id] for machine in machines))


def failed_in_cloud(state: State, record: JobRecord, ran_s: float) -> str:
    """Count a run that failed after `ran_s`; why no try follows if such failures cost too much, else ""."""
    if record.site is not Site.CLOUD or ran_s >= state.settings.clock_s(SOON_S):
        record.failing_micro_usd = 0
        return ""
    spent = spent_on(state, record).micro_usd
    record.failing_micro_usd += spent - record.left_micro_usd
    record.left_micro_usd = spent
    bound, cost = state.settings.max_failing, Money(record.failing_micro_usd)
    if bound is None or cost < bound:
        return ""
    tries = f"try {record.failures + 1} of {record.job.retries + 1}"
    return (
        f"its command ended with exit code {record.exit_code} soon after its start ({tries}); such tries "
        f"have cost {cost}, and cloud.max_usd_on_failures is {bound}"
    )


def worth_a_retry(record: JobRecord, event: RunEnded) -> bool:
    """Whether a failed command is retried: not after a cancellation or at the time limit."""
    left = record.failures < record.job.retries
    return left and event.end is RunEnd.EXITED and record.stop_why is not StopReason.CANCEL


def try_again(state: State, record: JobRecord) -> bool:
    """Pause a job whose command failed, longer after each failure, longest where a try rents a machine.

    Returns whether it keeps its machines meanwhile.
    """
    record.failures += 1
    most_s = MOST_RENTED_S if record.failing_micro_usd else MOST_S
    pause = state.settings.clock_s(pause_s(record.failures, most_s))
    record.not_before = state.now + pause
    tries = {"number": record.failures + 1, "of": record.job.retries + 1}
    cost = {"micro_usd": record.failing_micro_usd} if record.failing_micro_usd else {}
    keeps = _keeps_machines(state, record, pause)
    there = {"on": where(record.slots)} if keeps else {}
    state.decide(record.id, "retries", exit_code=record.exit_code, pause_s=pause, **tries, **cost, **there)
    return keeps


def _keeps_machines(state: State, record: JobRecord, pause_s: float) -> bool:
    """Whether the machines are fit for a run, and others would take longer to come up than the pause."""
    if record.site is not Site.CLOUD or record.stop_why is not None:
        return False
    machines = [state.fleet.instances[name] for name in places(record.slots)]
    sound = all(machine.is_sound for machine in machines) and state.fleet.ready(record.slots)
    boots_s = (state.settings.clock_s(state.fleet.boot_s(machine.offer)) for machine in machines)
    return sound and pause_s <= min(boots_s)
