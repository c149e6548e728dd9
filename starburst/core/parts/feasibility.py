"""Feasibility: whether a queued job can start before its deadline, by estimates of the runs on the cluster.

A job that cannot is hopeless: it would wait to its deadline and leave for the cloud then. The test is
optimistic. It takes the cluster at the deadline with no further starts: runs with an expected end before then
are gone, and so are runs whose end is unknown (no estimate, past the estimate, starting, stopping, returning,
resumed from a checkpoint). With exact estimates the same jobs leave as without the test, none of them later.

A feasible job is registered on the nodes that the test found for it. It is tested again only when a run
begins on one of them or the nodes change, as nothing else can make it infeasible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isinf

from starburst.core.model.actions import Slot
from starburst.core.model.estimates import certain_end
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity
from starburst.domain.job import CloudChoice, Phase, Site
from starburst.domain.resources import NOTHING, Resources


class Prospects:
    """Resources held per node and job, and the queued jobs whose feasibility depends on each node."""

    def __init__(self, jobs: Mapping[str, JobRecord]) -> None:
        self._jobs = jobs
        self._holders: dict[str, dict[str, Resources]] = {}
        self._counting_on: dict[str, set[str]] = {}
        self._suspects: set[str] = set()

    def hold(self, job_id: str, slots: Iterable[Slot]) -> None:
        """The job has these slots now."""
        for slot in slots:
            held = self._holders.setdefault(slot.where, {})
            held[job_id] = held.get(job_id, NOTHING) + slot.resources

    def drop(self, job_id: str, slots: Iterable[Slot]) -> None:
        """The job has released these slots."""
        for slot in slots:
            self._holders[slot.where].pop(job_id, None)

    def suspect(self, record: JobRecord) -> None:
        """Schedule a test of a job that joined the queue."""
        self._suspects.add(record.id)

    def began(self, slots: Iterable[Slot]) -> None:
        """A run began on these nodes, so its end can be estimated: test the jobs that depend on them."""
        for slot in slots:
            self._suspects |= self._counting_on.pop(slot.where, set())

    def nodes_changed(self) -> None:
        """The nodes changed: schedule a test of every registered job."""
        self._suspects.update(*self._counting_on.values())
        self._counting_on.clear()

    def hopeless(self, capacity: Capacity, now: float) -> list[JobRecord]:
        """Test the scheduled jobs; returns those that cannot start in time, in queue order."""
        asked = [self._jobs[job_id] for job_id in self._suspects if job_id in self._jobs]
        self._suspects.clear()
        asked.sort(key=lambda record: (record.order_key, record.seq))
        return [
            record for record in asked if _waits(record, now) and not self._can_start(record, capacity, now)
        ]

    def _can_start(self, record: JobRecord, capacity: Capacity, now: float) -> bool:
        nodes = capacity.would_hold(record.job, lambda name: self._freed(name, now, record.deadline))
        for name in nodes:
            self._counting_on.setdefault(name, set()).add(record.id)
        return bool(nodes)

    def _freed(self, name: str, now: float, deadline: float) -> Resources:
        """Resources on a node that its present holders release before the deadline, at best."""
        freed = NOTHING
        for job_id, held in self._holders.get(name, {}).items():
            record = self._jobs[job_id]
            end = certain_end(record, now) if record.site is Site.CLUSTER else None
            if end is None or end < deadline or end <= now:
                freed += held
        return freed


def _waits(record: JobRecord, now: float) -> bool:
    """Whether the job is queued with a finite deadline in the future and is free to leave for the cloud."""
    free_to_go = record.job.cloud is CloudChoice.AUTO and record.obstacle is None
    return (
        record.phase is Phase.QUEUED and free_to_go and now < record.deadline and not isinf(record.deadline)
    )
