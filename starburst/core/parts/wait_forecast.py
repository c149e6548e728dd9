"""Forecast of a queued job's wait: from expected ends of the cluster's runs, and from the jobs ahead."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from math import fsum

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity, amount
from starburst.core.parts.queue import ShapeQueue
from starburst.domain.resources import Resources
from starburst.policy.wait_prediction import predicted_wait_s


class WaitForecast:
    """Slots of the cluster that are in use, in order of the expected end of their use; scheduler seconds."""

    def __init__(self, queue: ShapeQueue, capacity: Capacity) -> None:
        #: Jobs that have joined the queue and whose wait was not predicted yet.
        self.newcomers: list[JobRecord] = []
        self._queue = queue
        self._capacity = capacity
        #: (expected end, job id), sorted.
        self._ends: list[tuple[float, str]] = []
        self._held: dict[str, tuple[float, tuple[Slot, ...]]] = {}

    def hold(self, job_id: str, slots: tuple[Slot, ...], until: float) -> None:
        """The job has these slots until then; those that it had are forgotten."""
        self.drop(job_id)
        self._held[job_id] = until, slots
        insort(self._ends, (until, job_id))

    def expect(self, job_id: str, until: float) -> None:
        """The job's use is expected to end at another time; no effect if it holds no slots."""
        held = self._held.get(job_id)
        if held is not None and held[0] != until:
            self.hold(job_id, held[1], until)

    def drop(self, job_id: str) -> None:
        """The job has released its slots."""
        held = self._held.pop(job_id, None)
        if held is not None:
            del self._ends[bisect_left(self._ends, (held[0], job_id))]

    def wait_s(self, record: JobRecord, now: float) -> float:
        """Predicted seconds until a queued job starts on the cluster.

        The unit of sizes is the GPU, or the CPU for a job without GPUs; only nodes that admit the job count.
        """
        demand = amount(record.job.resources)
        kind = 0 if demand[0] else 1
        nodes = self._capacity.candidates(record.job)
        room = [(has[kind], max(0, left[kind])) for has, left in self._capacity.room(nodes)]
        return predicted_wait_s(
            demand[kind],
            sum(left for _, left in room),
            ((until - now, amount(part)[kind]) for until, part in self._releases(nodes)),
            self._work_ahead(record, nodes, kind),
            sum(has for has, _ in room),
        )

    def _releases(self, nodes: Collection[str]) -> Iterator[tuple[float, Resources]]:
        """Expected end and resources of every slot on these nodes, the earliest end first."""
        for until, job_id in self._ends:
            for slot in self._held[job_id][1]:
                if slot.where in nodes:
                    yield until, slot.resources

    def _work_ahead(self, record: JobRecord, nodes: frozenset[str], kind: int) -> float:
        """Σ size · run time of the jobs ahead of this one that may take room on one of these nodes."""
        own = record.order_key, record.seq
        return fsum(
            amount(other.job.resources)[kind] * other.wait.runtime_s
            for other in self._queue.jobs()
            if (other.order_key, other.seq) < own
            and other.wait is not None
            and ((names := self._capacity.candidates(other.job)) is nodes or not nodes.isdisjoint(names))
        )
