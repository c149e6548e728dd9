"""Interference between jobs on one instance, learnt from their progress reports (Eva, section 4.4).

A job's throughput is its reported rate divided by the rate of the same workload alone: the rate observed on
such GPUs or, if there is none, the rate measured by its user. Without either, a report of a job that shares
an instance is not used. A report counts only if the set of jobs on its instances has not changed for
SETTLED_S, and a job with unchanged neighbours is sampled every AGAIN_S, so that a thousand jobs that report
every ten seconds cause few steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.state import State
from starburst.domain.job import Job, Phase, Site
from starburst.policy.packing.throughput import throughputs

#: Seconds without a change of neighbours before a report counts: its averaging window plus its delay.
SETTLED_S = 60.0
#: Seconds between two samples of a job whose neighbours stay the same.
AGAIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Colocated:
    """The workloads that share a job's instances."""

    #: Per task of the job: its workload, and the workloads of other jobs' tasks on the same machine.
    tasks: tuple[tuple[str, tuple[str, ...]], ...]
    #: Time of the last change, scheduler seconds.
    since: float

    @property
    def is_none(self) -> bool:
        """Whether the job has its instances to itself."""
        return not any(beside for _, beside in self.tasks)


def teaches(state: State, record: JobRecord, now: float) -> bool:
    """Whether a rate reported now is used: neighbours settled, sample due, solo rate known if shared."""
    company = _company(state, record)
    if company is None or now - company.since < state.settings.clock_s(SETTLED_S):
        return False
    seen_at = -inf if record.observed_at is None else record.observed_at
    if seen_at > company.since and now - seen_at < state.settings.clock_s(AGAIN_S):
        return False
    return company.is_none or _alone_per_s(state, record) is not None


def observe(state: State, record: JobRecord, per_s: float) -> None:
    """Use a reported rate, iterations per scheduler second, if `teaches` allows it.

    A job alone on its instances updates the solo rate of its workload; any other updates the co-location
    table with its rate divided by the solo rate.
    """
    if not teaches(state, record, state.now):
        return
    company, alone_per_s = _company(state, record), _alone_per_s(state, record)
    assert company is not None
    if company.is_none:
        state.fleet.speeds.alone.observe(_what(state, record), per_s, now=state.now)
    elif alone_per_s is not None:
        state.fleet.speeds.table.observe(company.tasks, per_s / alone_per_s, now=state.now)
    record.observed_at = state.now
    state.touch(record)
    state.changes.speeds = state.fleet.speeds.snapshot()


def slowed_by(state: State, job: Job) -> frozenset[tuple[str, int]]:
    """Machines (instance, number) whose weighted total throughput would fall if this job joined them."""
    name = state.fleet.speeds.name_of(job)
    if not name:
        return frozenset()
    return frozenset(
        (machine.id, node)
        for machine in state.fleet.instances.values()
        for node in range(machine.offer.nodes)
        if _does_less(state, machine, node, job, name)
    )


def _does_less(state: State, machine: InstanceRecord, node: int, job: Job, name: str) -> bool:
    """Whether a machine's total throughput, weighted by resource share, falls with a task of the job."""
    table, whole = state.fleet.speeds.table, machine.offer.resources
    there = machine.held_of(node)
    names = [state.fleet.speeds.name_of(state.jobs[job_id].job) for job_id in there]
    shares = [held.largest_share(whole) for held in there.values()]
    share = job.tasks[0].largest_share(whole)
    without = _dot(throughputs(table, names), shares)
    return _dot(throughputs(table, [*names, name]), [*shares, share]) < without


def _dot(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True))


def _company(state: State, record: JobRecord) -> Colocated | None:
    """The workloads beside a job; None if it does not run on known instances that jobs may share."""
    runs = record.phase is Phase.RUNNING and record.site is Site.CLOUD and record.started_at is not None
    machines = {slot.where: state.fleet.instances.get(slot.where) for slot in record.slots}
    if not runs or not state.fleet.shares:
        return None
    since = record.started_at or 0.0
    beside: dict[tuple[str, int], list[str]] = {}
    for where, machine in machines.items():
        if machine is None:
            return None
        since = max([since, *(use.until for use in machine.uses if use.until < inf)])
        mates = list(_mates(state, record, machine))
        since = max([since, *(mate.started_at or 0.0 for mate in mates)])
        for mate in mates:
            for slot in (slot for slot in mate.slots if slot.where == where):
                beside.setdefault((where, slot.node), []).append(mate.job.known_as)
    tasks = tuple((record.job.known_as, tuple(beside.get((s.where, s.node), ()))) for s in record.slots)
    return Colocated(tasks, since)


def _mates(state: State, record: JobRecord, machine: InstanceRecord) -> Iterator[JobRecord]:
    """Other jobs that run on an instance."""
    for job_id in machine.job_ids:
        mate = state.jobs[job_id]
        if mate is not record and mate.alive and mate.started_at is not None:
            yield mate


def _alone_per_s(state: State, record: JobRecord) -> float | None:
    seen = state.fleet.speeds.alone.per_s(_what(state, record))
    return record.job.alone_per_s if seen is None else seen


def _what(state: State, record: JobRecord) -> str:
    """Key of a solo rate: workload, tasks and GPU types; rates are comparable only if all three are equal."""
    offers = {state.fleet.instances[slot.where].offer for slot in record.slots}
    on = ", ".join(sorted({offer.resources.gpu_type or offer.family for offer in offers}))
    needs = ", ".join(str(slot.resources) for slot in record.slots)
    return f"{record.job.known_as}: {needs} on {on}"
