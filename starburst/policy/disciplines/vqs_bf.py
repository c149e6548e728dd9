"""VQS-BF: configurations of VQS filled best-fit; any waiting jobs fill the remaining room (section VI)."""

from __future__ import annotations

from collections.abc import Mapping

from starburst.policy.disciplines import stalling
from starburst.policy.disciplines.by_size import BySize
from starburst.policy.disciplines.configurations import LARGE, Configuration, heaviest, reduced
from starburst.policy.disciplines.discipline import ServerStart
from starburst.policy.disciplines.partition import Partition
from starburst.policy.disciplines.rooms import CLOSED, FirstRoom


class VirtualQueuesBestFit:
    """Throughput of at least 2/3 of the maximum (theorem 4), if no size is below 2⁻ᴶ of the capacity.

    Servers are visited in order; an empty one takes the configuration of maximum weight. Each takes the
    largest fitting job of type 1 if its configuration has a slot for it, then the largest fitting jobs of the
    other type up to its slots, then the largest fitting jobs of any type. Jobs occupy their exact size.
    Afterwards no waiting job fits any server, so only servers with room for the smallest waiting job are
    visited.
    """

    def __init__(self, servers: int, capacity: int, *, levels: int, stall: float = 0.0) -> None:
        self._capacity = capacity
        self._stall = stall
        self._types = Partition(capacity, levels)
        self._choices = reduced(levels)
        self._queue = BySize()
        #: Waiting jobs per type; running jobs per server and type.
        self._waiting = [0] * len(self._types)
        self._running = [[0] * len(self._types) for _ in range(servers)]
        self._free = [capacity] * servers
        #: Room of the servers that accept jobs.
        self._rooms = FirstRoom(servers, capacity)
        self._configured = [self._choices[0]] * servers
        self._held: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def configuration(self, server: int) -> Configuration:
        """The active configuration."""
        return self._configured[server]

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue."""
        self._queue.add(job, size)
        self._waiting[self._types.kind(size)] += 1

    def withdraw(self, job: int) -> None:
        """A waiting job leaves the queue."""
        self._waiting[self._types.kind(self._queue.remove(job))] -= 1

    def leave(self, job: int, server: int) -> None:
        """A job has ended."""
        kind, size = self._held.pop(job)
        self._running[server][kind] -= 1
        self.room(server, min(self._capacity, self._free[server] + size))

    def hold(self, job: int, size: int, server: int) -> None:
        """A job that this discipline did not start runs on the server; a call of `room` follows."""
        kind = self._types.kind(size)
        self._held[job] = kind, size
        self._running[server][kind] += 1

    def room(self, server: int, room: int) -> None:
        """The server's free room, including changes by work outside the discipline."""
        self._free[server] = room
        if room == self._capacity:
            self._configured[server] = self._choices[0]  # replaced when `start` fills the server
        elif self._rooms[server] == CLOSED:
            return
        self._rooms.set(server, room)

    def kept(self) -> Mapping[int, Configuration]:
        """The configurations that differ from the first one, which every empty server has."""
        first = self._choices[0]
        return {server: chosen for server, chosen in enumerate(self._configured) if chosen != first}

    def keep(self, server: int, configuration: Configuration) -> None:
        """Restore a server's stored configuration."""
        self._configured[server] = configuration

    def start(self) -> list[ServerStart]:
        """The jobs that start now, with their servers."""
        started: list[ServerStart] = []
        while (smallest := self._queue.smallest()) is not None:
            server = self._rooms.first(smallest)
            if server is None:
                break
            if self._free[server] == self._capacity:
                _, self._configured[server] = heaviest(self._choices, self._waiting)
            elif self._stall and self._inefficient(server):
                self._rooms.set(server, CLOSED)
                continue
            self._fill(server, started)
            self._rooms.set(server, self._free[server])
        return started

    def _inefficient(self, server: int) -> bool:
        best, _ = heaviest(self._choices, self._waiting)
        return stalling.far_from_best(self._configured[server].weight(self._waiting), best, self._stall)

    def _fill(self, server: int, started: list[ServerStart]) -> None:
        """Fill with type 1, then the configuration's other type, then any type."""
        large, kind, slots = self._configured[server]
        running = self._running[server]
        if large and (size := self._largest(LARGE, self._free[server])) is not None:
            self._place(size, LARGE, server, started)
        while running[kind] < slots and (size := self._largest(kind, self._free[server])) is not None:
            self._place(size, kind, server, started)
        while (size := self._queue.largest(self._free[server])) is not None:
            self._place(size, self._types.kind(size), server, started)

    def _largest(self, kind: int, room: int) -> int | None:
        """The largest waiting size of this type that is ≤ room; None if there is none."""
        if not self._waiting[kind]:
            return None
        size = self._queue.largest(min(room, self._types.tops[kind]))
        return size if size is not None and self._types.kind(size) == kind else None

    def _place(self, size: int, kind: int, server: int, started: list[ServerStart]) -> None:
        job = self._queue.take(size)
        self._held[job] = kind, size
        self._waiting[kind] -= 1
        self._running[server][kind] += 1
        self._free[server] -= size
        started.append((job, server))
