"""Retries of failed commands: the pause before each, and the bound on what runs that fail soon may cost.

In the cloud each try rents a machine. Runs that fail within `SOON_S` of their start, one after the other, are
most likely a broken command: their pauses grow up to an hour, and once they have cost `max_failing` the job
has failed, whatever retries it has left.
"""

from __future__ import annotations

from starburst.core.model.jobs import JobRecord
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


def failed_in_cloud(state: State, record: JobRecord, runtime_s: float) -> str:
    """Count a failed run; why the job is not tried again if its failures have cost too much, else ""."""
    if record.site is not Site.CLOUD or runtime_s >= state.settings.clock_s(SOON_S):
        record.failing_micro_usd = 0
        return ""
    record.failing_micro_usd += spent_on(state, record).micro_usd - record.left_micro_usd
    bound, cost = state.settings.max_failing, Money(record.failing_micro_usd)
    if bound is None or cost < bound:
        return ""
    tries = f"try {record.failures + 1} of {record.job.retries + 1}"
    return (
        f"its command ended with exit code {record.exit_code} soon after its start ({tries}); such tries "
        f"have cost {cost}, and cloud.max_usd_on_failures is {bound}"
    )


def try_again(state: State, record: JobRecord) -> None:
    """Pause a job whose command failed, longer after each failure, longest where a try rents a machine."""
    record.failures += 1
    most_s = MOST_RENTED_S if record.failing_micro_usd else MOST_S
    pause = state.settings.clock_s(pause_s(record.failures, most_s))
    record.not_before = state.now + pause
    tries = {"number": record.failures + 1, "of": record.job.retries + 1}
    cost = {"micro_usd": record.failing_micro_usd} if record.failing_micro_usd else {}
    state.decide(record.id, "retries", exit_code=record.exit_code, pause_s=pause, **tries, **cost)
