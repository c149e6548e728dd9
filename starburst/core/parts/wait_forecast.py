"""Forecast of queued jobs' waits: from expected ends of the cluster's runs, and from the jobs ahead."""

from __future__ import annotations

from collections.abc import Iterator

from starburst.core.model.actions import Slot
from starburst.core.model.estimates import run_s
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity, amount
from starburst.core.parts.queue import ShapeQueue
from starburst.policy.placement import Amount
from starburst.policy.wait_prediction import Line


class WaitForecast:
    """Slots of the cluster that are in use, in order of the expected end of their use; scheduler seconds."""

    def __init__(self, queue: ShapeQueue, capacity: Capacity) -> None:
        #: Jobs that have joined the queue and whose wait was not predicted yet.
        self.newcomers: list[JobRecord] = []
        self._queue = queue
        self._capacity = capacity
        #: By job: its record, the expected end of its use, and its slots as (node, amount).
        self._held: dict[str, tuple[JobRecord, float, tuple[tuple[str, Amount], ...]]] = {}

    def hold(self, record: JobRecord, slots: tuple[Slot, ...], until: float) -> None:
        """The job has these slots until then; those that it had are forgotten."""
        self._held[record.id] = record, until, tuple((slot.where, amount(slot.resources)) for slot in slots)

    def expect(self, job_id: str, until: float) -> None:
        """The job's use is expected to end at another time; no effect if it holds no slots."""
        held = self._held.get(job_id)
        if held is not None:
            self._held[job_id] = held[0], until, held[2]

    def drop(self, job_id: str) -> None:
        """The job has released its slots."""
        self._held.pop(job_id, None)

    def waits(self, records: list[JobRecord], now: float) -> Iterator[tuple[JobRecord, float]]:
        """Each of these queued jobs, in the order of the queue, and the predicted seconds until it starts.

        A job that leaves the queue before the next one is asked for is not ahead of that one.
        """
        if not records:
            return
        lines: dict[tuple[frozenset[str], int], tuple[Line, Iterator[JobRecord]]] = {}
        queued = sorted(self._queue.jobs(), key=_place)
        for record in sorted(records, key=_place):
            nodes, kind = self._nodes_of(record)
            if (nodes, kind) not in lines:
                lines[nodes, kind] = self._line(nodes, kind, now), iter(queued)
            line, ahead = lines[nodes, kind]
            for other in ahead:
                if other is record:
                    break
                if other.wait is not None and other.id in self._queue and self._competes(other, nodes):
                    line.add(amount(other.job.resources)[kind], other.wait.runtime_s)
            yield record, line.wait_s(amount(record.job.resources)[kind])
            if record.wait is not None and record.id in self._queue:
                line.add(amount(record.job.resources)[kind], record.wait.runtime_s)

    def wait_s(self, record: JobRecord, now: float) -> float:
        """Predicted seconds until a queued job starts on the cluster."""
        return next(wait_s for _, wait_s in self.waits([record], now))

    def _nodes_of(self, record: JobRecord) -> tuple[frozenset[str], int]:
        """The nodes that admit the job, and what its size counts: 0 is GPUs, 1 CPUs if it takes no GPU."""
        return self._capacity.candidates(record.job), 0 if amount(record.job.resources)[0] else 1

    def _competes(self, other: JobRecord, nodes: frozenset[str]) -> bool:
        """Whether the job may take room on one of these nodes."""
        names = self._capacity.candidates(other.job)
        return names is nodes or not nodes.isdisjoint(names)

    def _line(self, nodes: frozenset[str], kind: int, now: float) -> Line:
        """What is free on these nodes, and who ends when.

        A run that has outlasted its estimate is expected to take as long again as it has taken.
        """
        free = sum(max(0, left[kind]) for _, left in self._capacity.room(nodes))
        ends: list[tuple[float, float]] = []
        for record, until, parts in self._held.values():
            in_s = until - now if until > now else run_s(record, now)
            ends += [(in_s, part[kind]) for node, part in parts if node in nodes]
        return Line(free, sorted(ends))


def _place(record: JobRecord) -> tuple[float, int]:
    """The place in the order of the queue."""
    return record.order_key, record.seq
