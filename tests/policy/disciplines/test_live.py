"""What a discipline can be told besides arrivals and ends: jobs that go, and room that others take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.policy.disciplines.by_size import BySize
from starburst.policy.disciplines.discipline import ServerStart
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.disciplines.vqs import VirtualQueues
from starburst.policy.disciplines.vqs_bf import VirtualQueuesBestFit

CAPACITY = 60
sizes = st.integers(1, CAPACITY) | st.sampled_from([6, 12, 15, 20, 30, 33, 40, 60])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=40))
def test_any_job_can_be_taken_out_of_a_queue_by_size(steps: list[tuple[int, int]]) -> None:
    queue, waiting = BySize(), dict[int, int]()
    for job, size in steps:
        if job in waiting:
            assert queue.remove(job) == waiting.pop(job)
        else:
            queue.add(job, size)
            waiting[job] = size
        assert len(queue) == len(waiting)
        assert queue.smallest() == min(waiting.values(), default=None)
        assert queue.largest(5) == max(waiting.values(), default=None)
        assert all(queue.size(there) == waiting.get(there) for there in range(10))


@pytest.mark.parametrize("order", DISCIPLINES)
@given(jobs=st.lists(st.tuples(sizes, st.booleans()), max_size=20), servers=st.integers(1, 3))
def test_jobs_that_withdraw_at_once_might_as_well_not_have_come(
    order: str, jobs: list[tuple[int, bool]], servers: int
) -> None:
    with_them, without = (DISCIPLINES[order].make(servers, CAPACITY) for _ in range(2))
    for job, (size, stays) in enumerate(jobs):
        with_them.arrive(job, size)
        if stays:
            without.arrive(job, size)
    for job, (_, stays) in enumerate(jobs):
        if not stays:
            with_them.withdraw(job)
    assert with_them.start() == without.start()
    assert len(with_them) == len(without)


@pytest.mark.parametrize("order", DISCIPLINES)
@given(
    jobs=st.lists(sizes, max_size=20),
    rooms=st.lists(st.integers(0, CAPACITY), min_size=2, max_size=2),
)
def test_no_more_starts_than_there_is_room_for_beside_others(
    order: str, jobs: list[int], rooms: list[int]
) -> None:
    discipline = DISCIPLINES[order].make(2, CAPACITY)
    for server, room in enumerate(rooms):
        discipline.room(server, room)
    for job, size in enumerate(jobs):
        discipline.arrive(job, size)
    started = discipline.start()
    for server, room in enumerate(rooms):
        assert sum(jobs[job] for job, there in started if there == server) <= room
    # What is freed by others is used as soon as it is told.
    for server in range(2):
        discipline.room(server, CAPACITY)
    later = discipline.start()
    assert len(discipline) == len(jobs) - len(started) - len(later)
    waiting = sorted(set(range(len(jobs))) - {job for job, _ in started + later})
    if waiting and not DISCIPLINES[order].keeps_room:
        held = [sum(jobs[job] for job, there in later if there == server) for server in range(2)]
        assert min(jobs[job] for job in waiting) > CAPACITY - min(held)


def played(discipline: VirtualQueues | VirtualQueuesBestFit) -> list[ServerStart]:
    """Twelve small jobs and one large are there, then ends and arrivals; what starts after the first slot."""
    for job in range(12):
        discipline.arrive(job, 6)
    discipline.arrive(12, 35)
    first = discipline.start()
    assert (12, 0) not in first
    return first


@pytest.mark.parametrize("kind", [VirtualQueues, VirtualQueuesBestFit])
def test_a_discipline_that_is_told_all_anew_goes_on_as_the_old_one(
    kind: type[VirtualQueues] | type[VirtualQueuesBestFit],
) -> None:
    old = kind(1, CAPACITY, levels=4)
    running = played(old)
    new = kind(1, CAPACITY, levels=4)
    for server, chosen in old.kept().items():
        new.keep(server, chosen)
    for job, server in running:
        new.hold(job, 6, server)
    new.room(0, CAPACITY - 6 * len(running))
    for job in set(range(13)) - {job for job, _ in running}:
        new.arrive(job, 35 if job == 12 else 6)
    assert new.start() == []
    assert new.kept() == old.kept()
    for discipline in (old, new):
        for job in range(100, 104):
            discipline.arrive(job, 30)
    for job, server in running:
        for discipline in (old, new):
            discipline.leave(job, server)
        assert new.start() == old.start()
        assert new.kept() == old.kept()


def test_under_vqs_a_server_that_others_fill_takes_a_configuration_when_there_is_room_again() -> None:
    discipline = VirtualQueues(2, 10, levels=3)
    discipline.room(0, 1)
    discipline.room(1, 0)
    discipline.arrive(0, 5)
    assert discipline.start() == []
    assert not discipline.kept()
    discipline.room(1, 6)
    assert discipline.start() == [(0, 1)]
    assert list(discipline.kept()) == [1]
