"""Best fit from the job's side (BF-J), from the server's side (BF-S), and from both (BF-J/S); section IV."""

from __future__ import annotations

from collections.abc import Mapping

from starburst.policy.disciplines import stalling
from starburst.policy.disciplines.by_size import BySize
from starburst.policy.disciplines.configurations import Configuration
from starburst.policy.disciplines.discipline import ServerStart
from starburst.policy.disciplines.earliest import Earliest
from starburst.policy.disciplines.rooms import CLOSED, FirstRoom, TightRoom


class BestFitJobs:
    """BF-J: jobs in order of arrival, each on the server with the least sufficient room.

    Room only shrinks during `start`, so a job that fits no server once is not reconsidered; the next job to
    start is always the earliest one that fits the emptiest server.
    """

    def __init__(self, servers: int, capacity: int) -> None:
        self._rooms = TightRoom(servers, capacity)
        self._queue = Earliest(capacity)
        self._held: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue."""
        self._queue.add(job, size)

    def leave(self, job: int, server: int) -> None:
        """A job has ended."""
        self._rooms.set(server, self._rooms[server] + self._held.pop(job))

    def start(self) -> list[ServerStart]:
        """The jobs that start now, with their servers."""
        started: list[ServerStart] = []
        while (taken := self._queue.take(self._rooms.most)) is not None:
            job, size = taken
            server = self._rooms.tightest(size)
            assert server is not None
            self._held[job] = size
            self._rooms.set(server, self._rooms[server] - size)
            started.append((job, server))
        return started


class BestFitServers:
    """BF-S: servers in order, each filled with the largest job that fits until none does."""

    def __init__(self, servers: int, capacity: int) -> None:
        self._rooms = FirstRoom(servers, capacity)
        self._queue = BySize()
        self._held: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue."""
        self._queue.add(job, size)

    def leave(self, job: int, server: int) -> None:
        """A job has ended."""
        self._rooms.set(server, self._rooms[server] + self._held.pop(job))

    def start(self) -> list[ServerStart]:
        """The jobs that start now. Servers with less room than the smallest waiting job are skipped."""
        started: list[ServerStart] = []
        while (smallest := self._queue.smallest()) is not None:
            server = self._rooms.first(smallest)
            if server is None:
                break
            room = self._rooms[server]
            while (size := self._queue.largest(room)) is not None:
                job = self._queue.take(size)
                self._held[job] = size
                room -= size
                started.append((job, server))
            self._rooms.set(server, room)
        return started


class BestFitBoth:
    """BF-J/S: BF-S on the servers that jobs have left, then BF-J for new jobs that still wait.

    The throughput is at least 1/2 of the maximum (theorem 2). After `start` no waiting job fits any server.
    With `stall`, a server less than half full that cannot take a waiting job takes no job until it is empty
    (section VIII); this is for service times under which servers would otherwise never become empty.
    """

    def __init__(self, servers: int, capacity: int, *, stall: bool = False) -> None:
        self._capacity = capacity
        self._stall = stall
        self._free = [capacity] * servers
        #: Room of the servers that accept jobs.
        self._rooms = TightRoom(servers, capacity)
        self._queue = BySize()
        self._held: dict[int, int] = {}
        self._left: set[int] = set()
        self._new: list[int] = []

    def __len__(self) -> int:
        return len(self._queue)

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue."""
        self._queue.add(job, size)
        self._new.append(job)

    def withdraw(self, job: int) -> None:
        """A waiting job leaves the queue."""
        self._queue.remove(job)

    def leave(self, job: int, server: int) -> None:
        """A job has ended."""
        self.room(server, min(self._capacity, self._free[server] + self._held.pop(job)))

    def hold(self, job: int, size: int, server: int) -> None:
        """A job that this discipline did not start runs on the server; a call of `room` follows."""
        self._held[job] = size

    def room(self, server: int, room: int) -> None:
        """The server's free room, including changes by work outside the discipline."""
        grew = room > self._free[server]
        self._free[server] = room
        if self._rooms[server] != CLOSED or room == self._capacity:
            self._rooms.set(server, room)
            if grew:
                self._left.add(server)

    def kept(self) -> Mapping[int, Configuration]:
        """Always empty: nothing needs to be stored, as no waiting job fits any server after `start`."""
        return {}

    def keep(self, server: int, configuration: Configuration) -> None:
        """Does nothing: the discipline has no configurations."""

    def start(self) -> list[ServerStart]:
        """The jobs that start now, with their servers."""
        started: list[ServerStart] = []
        for server in sorted(self._left):
            while (size := self._queue.largest(self._free[server])) is not None:
                self._place(size, server, started)
            if self._stall and self._queue and stalling.half_empty(self._free[server], self._capacity):
                self._rooms.set(server, CLOSED)
        self._left.clear()
        for job in self._new:
            size = self._queue.size(job)
            # `take` returns the oldest job of this size; an older one would have fitted no server, and then
            # nor would this.
            if size is not None and (tightest := self._rooms.tightest(size)) is not None:
                self._place(size, tightest, started)
        self._new.clear()
        return started

    def _place(self, size: int, server: int, started: list[ServerStart]) -> None:
        job = self._queue.take(size)
        self._held[job] = size
        self._free[server] -= size
        self._rooms.set(server, self._free[server])
        started.append((job, server))
