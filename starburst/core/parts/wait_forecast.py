"""Forecast of queued jobs' waits: from expected ends of the cluster's runs, and from the jobs ahead."""

from __future__ import annotations

from collections.abc import Iterator

from starburst.core.model.actions import Slot
from starburst.core.model.estimates import run_s
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity, amount
from starburst.core.parts.queue import ShapeQueue
from starburst.domain.job import Job, Shape
from starburst.policy.placement import Amount
from starburst.policy.wait_prediction import Change, Need, Timeline


class WaitForecast:
    """Slots of the cluster that are in use, with the expected end of their use; scheduler seconds."""

    def __init__(self, queue: ShapeQueue, capacity: Capacity, *, passes: bool) -> None:
        """`passes`: a job may start before those that are ahead of it."""
        #: Jobs that have joined the queue since the last forecast.
        self.newcomers: list[JobRecord] = []
        self._queue = queue
        self._capacity = capacity
        self._passes = passes
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

    def waits(self, now: float) -> Iterator[tuple[JobRecord, float]]:
        """Each queued job, in the order of the queue, and the predicted seconds until it starts.

        A job that leaves the queue before the next one is asked for is not ahead of that one.
        """
        asks: dict[Shape, _Ask] = {}
        lines: dict[tuple[frozenset[str], int], Timeline] = {}
        ahead: list[tuple[_Ask, float]] = []
        for record in sorted(self._queue.jobs(), key=_place):
            ask = asks.get(record.job.shape)
            if ask is None:
                ask = asks[record.job.shape] = _Ask(record.job, self._capacity.candidates(record.job))
            line = lines.get(ask.line)
            if line is None:
                line = lines[ask.line] = self._line(*ask.line, now)
                for other, runtime_s in ahead:
                    other.add(line, ask.line, runtime_s)
            yield record, line.start_s(ask.needs[ask.kind])
            if record.wait is not None and record.id in self._queue:
                runtime_s = record.wait.runtime_s
                ahead.append((ask, runtime_s))
                for key, line in lines.items():
                    ask.add(line, key, runtime_s)

    def wait_s(self, record: JobRecord, now: float) -> float:
        """Predicted seconds until a queued job starts on the cluster."""
        return next(wait_s for other, wait_s in self.waits(now) if other is record)

    def _line(self, nodes: frozenset[str], kind: int, now: float) -> Timeline:
        """What is free on these nodes, and who ends when.

        A run that has outlasted its estimate is expected to take as long again as it has taken.
        """
        names = sorted(nodes)
        number = {name: i for i, name in enumerate(names)}
        room = [(whole[kind], free[kind]) for whole, free in self._capacity.room(names)]
        ends: list[Change] = []
        for record, until, parts in self._held.values():
            in_s = until - now if until > now else run_s(record, now)
            ends += [(in_s, number[node], part[kind]) for node, part in parts if node in number]
        return Timeline(room, ends, passes=self._passes)


class _Ask:
    """What jobs of a shape ask for: of which nodes, and how much."""

    def __init__(self, job: Job, nodes: frozenset[str]) -> None:
        sizes = [amount(task) for task in job.tasks]
        #: GPUs, and CPUs, which count for a job that takes no GPU.
        self.needs = [Need(max(size[kind] for size in sizes), len(sizes), job.spread) for kind in (0, 1)]
        self.kind = 0 if any(size[0] for size in sizes) else 1
        self.line = nodes, self.kind

    def add(self, line: Timeline, key: tuple[frozenset[str], int], runtime_s: float) -> None:
        """Such a job is ahead of others for the nodes of this line, if it may take room on one of them."""
        nodes, kind = key
        mine = self.line[0]
        if mine is nodes or not nodes.isdisjoint(mine):
            line.add(self.needs[kind], runtime_s)


def _place(record: JobRecord) -> tuple[float, int]:
    """The place in the order of the queue."""
    return record.order_key, record.seq
