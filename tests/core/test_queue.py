"""The queue by shapes: a walk that tries each shape once decides as one that tries every job."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from starburst.core.model.actions import Slot
from starburst.core.model.events import JobSubmitted, NodesChanged, RunEnd, RunEnded
from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.core.parts.capacity import Capacity
from starburst.core.parts.passes import OutOfOrder
from starburst.core.parts.queue import ShapeQueue
from starburst.core.scheduler import Scheduler
from starburst.domain.job import Job
from starburst.policy.placement import PLACEMENTS
from tests.builders import job, nodes

SHAPES: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 2},
    {"gpus": 3, "cpus": 8},
    {"gang": (2, 2)},
    {"gang": (4, 1)},
]


def record(seq: int, item: Job, key: float = 0.0) -> JobRecord:
    """A queued job."""
    return JobRecord(item, seq, 0.0, order_key=key)


def naive(waiting: list[JobRecord], capacity: Capacity) -> list[tuple[str, list[str]]]:
    """Try every job in order; who starts, and where."""
    started = []
    for item in sorted(waiting, key=lambda r: (r.order_key, r.seq)):
        slots = capacity.place(item.job)
        if slots is not None:
            capacity.take(slots)
            started.append((item.id, [slot.where for slot in slots]))
    return started


arrivals = st.tuples(st.integers(0, len(SHAPES) - 1), st.integers(0, 3))
steps = st.one_of(st.lists(arrivals, min_size=1, max_size=6), st.integers(0, 9))


@given(
    free=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    placement=st.sampled_from(sorted(PLACEMENTS)),
    script=st.lists(steps, min_size=1, max_size=15),
)
def test_the_walk_places_as_a_naive_walk_over_every_job(
    free: list[int], placement: str, script: list[Any]
) -> None:
    """A step of the script is a list of arrivals (shape, order key), or the rank of a run that ends."""
    capacity, queue, walk = Capacity(nodes(*free), PLACEMENTS[placement]), ShapeQueue(), OutOfOrder()
    running: list[JobRecord] = []
    seq = 0
    for step in script:
        if isinstance(step, list):
            for shape, key in step:
                seq += 1
                item = record(seq, job(f"j{seq}", **SHAPES[shape]), key)
                queue.add(item)
                walk.arrived(item.job.shape)
        elif running:
            capacity.give(running.pop(step % len(running)).slots)
            walk.grew(queue)
        wanted = naive(list(queue), capacity.copy())
        got = []
        for item, slots, _ in walk.walk(queue, capacity):
            queue.remove(item)
            capacity.take(slots)
            item.slots = slots
            running.append(item)
            got.append((item.id, [slot.where for slot in slots]))
        assert got == wanted


class Counting(Capacity):
    """Counts the attempts to place."""

    attempts = 0

    def place(self, job: Job) -> tuple[Slot, ...] | None:
        """One more."""
        self.attempts += 1
        return super().place(job)


def test_a_walk_over_ten_thousand_jobs_of_five_shapes_tries_a_handful() -> None:
    scheduler = Scheduler(Settings(waiting="infinite"))
    scheduler.state.capacity = Counting((), PLACEMENTS["best-fit"])
    scheduler.handle(NodesChanged(nodes(8, 8)), 0)
    scheduler.handle([JobSubmitted(job(f"busy{n}", 1)) for n in range(16)], 0)
    scheduler.handle([JobSubmitted(job(f"j{n}", **SHAPES[n % 5])) for n in range(10_000)], 1)
    assert len(scheduler.state.queue) == 10_000

    scheduler.state.capacity.attempts = 0
    actions = scheduler.handle(RunEnded("busy7", 1, RunEnd.EXITED, 0), 2)
    assert [action.job_id for action in actions] == ["j0"]
    assert scheduler.state.capacity.attempts <= 6, "each shape once, and the shape that fitted once more"

    scheduler.state.capacity.attempts = 0
    scheduler.handle(JobSubmitted(job("late", 1)), 3)
    assert scheduler.state.capacity.attempts == 0, "nothing was freed: a known shape is not tried again"


#: Order key, shape, whether it may leave, whether it was in the queue before.
keys = st.tuples(st.integers(0, 3), st.sampled_from(range(len(SHAPES))), st.booleans(), st.booleans())


def fill(queue: ShapeQueue, records: list[JobRecord], entries: list[tuple[int, int, bool, bool]]) -> None:
    """All join; some leave and come back to the very same place."""
    for item, (*_, came_back) in zip(records, entries, strict=True):
        queue.add(item)
        if came_back:
            queue.remove(item)
            queue.add(item)


@given(st.lists(keys, max_size=30), st.integers(0, 10))
def test_the_last_jobs_are_the_last_of_the_order(entries: list[Any], limit: int) -> None:
    queue = ShapeQueue()
    records = [record(n, job(f"j{n}", **SHAPES[shape]), key) for n, (key, shape, *_) in enumerate(entries)]
    stays = {f"j{n}" for n, (_, _, may_leave, _) in enumerate(entries) if not may_leave}
    fill(queue, records, entries)
    for _ in range(2):  # asking changes nothing
        leaving = [item.id for item in queue.beyond(limit, lambda r: r.id not in stays)]
        order = [item.id for item in queue if item.id not in stays]
        too_many = max(0, len(records) - limit)
        assert leaving == order[::-1][:too_many]


@given(st.lists(keys, min_size=1, max_size=30), st.data())
def test_the_first_is_right_after_any_removals(entries: list[Any], data: st.DataObject) -> None:
    queue = ShapeQueue()
    records = [record(n, job(f"j{n}", **SHAPES[shape]), key) for n, (key, shape, *_) in enumerate(entries)]
    fill(queue, records, entries)
    for item in data.draw(st.permutations(records)):
        first = min((r for r in records if r.id in queue), key=lambda r: (r.order_key, r.seq))
        assert queue.first() is first
        assert next(iter(queue)) is first
        queue.remove(item)
    assert queue.first() is None
    assert not list(queue.shapes())


def test_many_removals_leave_no_trace() -> None:
    """The tail's heap is rebuilt before removed entries outnumber the living ones for long."""
    queue = ShapeQueue()
    queue.add(stays := record(1000, job("stays")))
    assert queue.beyond(0, lambda r: False) == []  # only under a limit there is a heap of the tail
    for n in range(1000):
        item = record(n, job(f"j{n}"))
        queue.add(item)
        queue.remove(item)
    assert queue._tail is not None
    assert len(queue._tail) <= 65
    assert queue.beyond(0, lambda r: True) == [stays]


def test_behind_a_job_that_stays_those_that_left_are_forgotten_too() -> None:
    queue = ShapeQueue()
    queue.add(record(0, job("stays", 4)))
    for seq in range(1, 1000):
        queue.add(record(seq, job(f"j{seq}", 4)))
        queue.remove(record(seq, job(f"j{seq}", 4)))
    (heap,) = queue._heaps.values()
    assert len(heap) <= 65
    first = queue.first()
    assert first is not None
    assert first.id == "stays"
