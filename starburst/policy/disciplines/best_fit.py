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
    """BF-J: jobs in order of arrival, each to the server with the least room that holds it.

    Room only shrinks while they start, so a job passed over once is passed over for good: the next to start
    is the earliest that fits the emptiest server.
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
        """A job is done."""
        self._rooms.set(server, self._rooms[server] + self._held.pop(job))

    def start(self) -> list[ServerStart]:
        """Jobs that start now."""
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
        """A job is done."""
        self._rooms.set(server, self._rooms[server] + self._held.pop(job))

    def start(self) -> list[ServerStart]:
        """Jobs that start now. Servers that not even the smallest job fits are not looked at."""
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
    """BF-J/S: BF-S on the servers that jobs have left, then BF-J for the new jobs that are still waiting.

    Serves at least half of what any policy can (theorem 2). When it is done nothing that waits fits any
    server. With `stall`, a server under half full that cannot take what waits takes nothing until it is
    empty (section VIII), for service times that would not let it empty.
    """

    def __init__(self, servers: int, capacity: int, *, stall: bool = False) -> None:
        self._capacity = capacity
        self._stall = stall
        self._free = [capacity] * servers
        #: The room of those that take jobs.
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
        """A job that waits does so no longer."""
        self._queue.remove(job)

    def leave(self, job: int, server: int) -> None:
        """A job is done."""
        self.room(server, min(self._capacity, self._free[server] + self._held.pop(job)))

    def hold(self, job: int, size: int, server: int) -> None:
        """A job runs there that was not started from here; `room` is told next."""
        self._held[job] = size

    def room(self, server: int, room: int) -> None:
        """What is free on a server, whoever took or freed the rest."""
        grew = room > self._free[server]
        self._free[server] = room
        if self._rooms[server] != CLOSED or room == self._capacity:
            self._rooms.set(server, room)
            if grew:
                self._left.add(server)

    def kept(self) -> Mapping[int, Configuration]:
        """Nothing has to be remembered: no waiting job fits any server once `start` is done."""
        return {}

    def keep(self, server: int, configuration: Configuration) -> None:
        """There are no configurations."""

    def start(self) -> list[ServerStart]:
        """Jobs that start now."""
        started: list[ServerStart] = []
        for server in sorted(self._left):
            while (size := self._queue.largest(self._free[server])) is not None:
                self._place(size, server, started)
            if self._stall and self._queue and stalling.half_empty(self._free[server], self._capacity):
                self._rooms.set(server, CLOSED)
        self._left.clear()
        for job in self._new:
            size = self._queue.size(job)
            # Had an older job of this size been waiting, it would not have fitted, and neither would this.
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
