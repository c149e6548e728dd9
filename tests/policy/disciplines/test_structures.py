"""The searched structures against plain search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from starburst.policy.disciplines.by_size import BySize
from starburst.policy.disciplines.earliest import Earliest
from starburst.policy.disciplines.rooms import CLOSED, FirstRoom, TightRoom


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 8), st.integers(CLOSED, 20), st.integers(1, 20)), max_size=40),
)
def test_a_job_finds_the_first_and_the_tightest_server(
    servers: int, changes: list[tuple[int, int, int]]
) -> None:
    first, tight, rooms = FirstRoom(servers, 20), TightRoom(servers, 20), [20] * servers
    for number, room, size in changes:
        server = number % servers
        rooms[server] = room
        first.set(server, room)
        tight.set(server, room)
        fitting = [s for s, there in enumerate(rooms) if there >= size]
        assert first.first(size) == min(fitting, default=None)
        assert tight.tightest(size) == min(fitting, key=lambda s: (rooms[s], s), default=None)
        assert tight.most == max(rooms)
        assert first[server] == tight[server] == room


@given(st.lists(st.tuples(st.integers(1, 33), st.integers(0, 33), st.booleans()), max_size=60))
def test_the_largest_and_the_earliest_that_fit_are_found(steps: list[tuple[int, int, bool]]) -> None:
    by_size, earliest = BySize(), Earliest(33)
    large: list[tuple[int, int]] = []
    early: list[tuple[int, int]] = []
    for job, (size, room, joins) in enumerate(steps):
        if joins:
            for queue in (large, early):
                queue.append((job, size))
            by_size.add(job, size)
            earliest.add(job, size)
            continue
        expected = next((one for one in early if one[1] <= room), None)
        assert earliest.take(room) == expected
        if expected:
            early.remove(expected)
        most = max((there for _, there in large if there <= room), default=None)
        assert by_size.largest(room) == most
        assert by_size.smallest() == min((there for _, there in large), default=None)
        if most is not None:
            oldest = next(one for one in large if one[1] == most)
            assert by_size.take(most) == oldest[0]
            large.remove(oldest)
        assert (len(by_size), len(earliest)) == (len(large), len(early))
