"""Whether a queued job can still start before its wait ends, by the estimates of what runs on the cluster.

If not, waiting on is hopeless: it ends in the cloud anyway, only later. The bound is on the safe side. It
looks at the cluster as it will be at the job's deadline if nothing else starts there: what runs and is
expected to have ended by then is gone; so is what may end at any time, since nobody knows better (no
estimate, past its estimate, starting, stopping, on its way home, resumed from a checkpoint). With right
estimates the same jobs leave as ever, and every one of them no later.

A job that could start has found nodes to start on, and is asked again only when a run begins on one of them,
or nodes are reported anew: nothing else makes its prospects worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isinf

from starburst.core.model.actions import Slot
from starburst.core.model.estimates import certain_end
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity, amount
from starburst.domain.job import CloudChoice, Phase, Site
from starburst.policy.placement import Amount


class Prospects:
    """Who holds what on every node, and which queued jobs count on which nodes."""

    def __init__(self, jobs: Mapping[str, JobRecord]) -> None:
        self._jobs = jobs
        self._holders: dict[str, dict[str, Amount]] = {}
        self._counting_on: dict[str, set[str]] = {}
        self._suspects: set[str] = set()

    def hold(self, job_id: str, slots: Iterable[Slot]) -> None:
        """The job has these slots now."""
        for slot in slots:
            held = self._holders.setdefault(slot.where, {})
            held[job_id] = _sum(held.get(job_id, (0, 0, 0)), amount(slot.resources))

    def drop(self, job_id: str, slots: Iterable[Slot]) -> None:
        """The job has given these slots back."""
        for slot in slots:
            self._holders[slot.where].pop(job_id, None)

    def suspect(self, record: JobRecord) -> None:
        """The job has a new deadline: ask whether it can be kept."""
        self._suspects.add(record.id)

    def began(self, slots: Iterable[Slot]) -> None:
        """A run began there: from now on one knows how long it holds its slots."""
        for slot in slots:
            self._suspects |= self._counting_on.pop(slot.where, set())

    def nodes_changed(self) -> None:
        """Nodes may have left, or take no more jobs: everyone is asked again."""
        self._suspects.update(*self._counting_on.values())
        self._counting_on.clear()

    def hopeless(self, capacity: Capacity, now: float) -> list[JobRecord]:
        """Jobs that cannot start in time, of those whose prospects may have changed; in queue order."""
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

    def _freed(self, name: str, now: float, deadline: float) -> Amount:
        """What those who hold a node now will have given back before the deadline, at best."""
        freed = (0, 0, 0)
        for job_id, held in self._holders.get(name, {}).items():
            record = self._jobs[job_id]
            end = certain_end(record, now) if record.site is Site.CLUSTER else None
            if end is None or end < deadline or end <= now:
                freed = _sum(freed, held)
        return freed


def _waits(record: JobRecord, now: float) -> bool:
    """Whether it waits by our decision, with an end to it that has not come yet."""
    free_to_go = record.job.cloud is CloudChoice.AUTO and record.obstacle is None
    return (
        record.phase is Phase.QUEUED and free_to_go and now < record.deadline and not isinf(record.deadline)
    )


def _sum(a: Amount, b: Amount) -> Amount:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])
