"""VQS: one virtual queue per type of size; a server keeps its configuration until it is empty (section V)."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from sortedcontainers import SortedSet

from starburst.policy.disciplines import stalling
from starburst.policy.disciplines.configurations import LARGE, Configuration, heaviest, reduced
from starburst.policy.disciplines.discipline import ServerStart
from starburst.policy.disciplines.partition import Partition
from starburst.policy.disciplines.rooms import CLOSED, FirstRoom


class VirtualQueues:
    """Throughput of at least 2/3 of the maximum (theorem 3), if no size is below 2⁻ᴶ of the capacity.

    An empty server takes the configuration of maximum weight when jobs wait. A configuration with a slot for
    type 1 reserves 2/3 of the server for one job of that type; the rest serves as many jobs of the other type
    as fit. Each queue is served in order of arrival, its head on the first server that serves its type and
    has room. With `stall` > 0 a server whose configuration weighs less than that share of the maximum takes
    no job until it is empty.
    """

    def __init__(self, servers: int, capacity: int, *, levels: int, stall: float = 0.0) -> None:
        self._capacity = capacity
        self._stall = stall
        self._types = Partition(capacity, levels)
        self._choices = reduced(levels)
        types = range(len(self._types))
        self._queues = [SortedSet() for _ in types]
        self._waiting = [0 for _ in types]
        self._sizes: dict[int, int] = {}
        #: Per type, the room for it on each server that serves it.
        self._rooms = [FirstRoom(servers, CLOSED) for _ in types]
        self._configured: list[Configuration | None] = [None] * servers
        self._stalled = [False] * servers
        self._free = [capacity] * servers
        #: Per server and type: the number of running jobs and the room they occupy.
        self._running = [[0 for _ in types] for _ in range(servers)]
        self._taken = [[0 for _ in types] for _ in range(servers)]
        #: Servers without a configuration.
        self._empty = list(range(servers))
        heapify(self._empty)
        self._held: dict[int, tuple[int, int]] = {}
        #: Types whose queue head or room has changed.
        self._changed: set[int] = set()

    def __len__(self) -> int:
        return sum(self._waiting)

    def configuration(self, server: int) -> Configuration | None:
        """The active configuration; None while the server is empty."""
        return self._configured[server]

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue of its type."""
        kind = self._types.kind(size)
        self._sizes[job] = self._types.rounded(size)
        self._queues[kind].add(job)
        self._waiting[kind] += 1
        if self._queues[kind][0] == job:
            self._changed.add(kind)

    def withdraw(self, job: int) -> None:
        """A waiting job leaves the queue."""
        kind = self._types.kind(self._sizes[job])
        if self._queues[kind][0] == job:
            self._changed.add(kind)
        self._depart(kind, job)

    def leave(self, job: int, server: int) -> None:
        """A job has ended."""
        kind, size = self._held.pop(job)
        self._running[server][kind] -= 1
        self._taken[server][kind] -= size
        self.room(server, min(self._capacity, self._free[server] + size))

    def hold(self, job: int, size: int, server: int) -> None:
        """A job that this discipline did not start runs on the server; a call of `room` follows."""
        self._occupy(job, self._types.kind(size), self._types.rounded(size), server)

    def room(self, server: int, room: int) -> None:
        """The server's free room, including changes by work outside the discipline."""
        self._free[server] = room
        if self._configured[server] is None:
            return
        if self._is_idle(server):
            self._clear(server)
        else:
            self._refresh(server)

    def kept(self) -> Mapping[int, Configuration]:
        """The configurations of the servers that have one."""
        return {server: chosen for server, chosen in enumerate(self._configured) if chosen is not None}

    def keep(self, server: int, configuration: Configuration) -> None:
        """Restore a server's stored configuration."""
        self._empty.remove(server)
        heapify(self._empty)
        self._configured[server] = configuration

    def start(self) -> list[ServerStart]:
        """The jobs that start now: first on configured servers, then on empty ones, one server at a time."""
        started: list[ServerStart] = []
        self._serve_changed(started)
        barren: list[int] = []
        while self._empty and any(self._waiting):
            server = heappop(self._empty)
            if self._free[server]:
                self._renew(server)
                self._serve_changed(started)
                if not self._is_idle(server):
                    continue
                self._close(server)
                self._configured[server] = None
            barren.append(server)  # other work on the server leaves too little room
        for server in barren:
            heappush(self._empty, server)
        return started

    def _serve_changed(self, started: list[ServerStart]) -> None:
        while self._changed:
            kind = min(self._changed)
            self._changed.remove(kind)
            self._serve(kind, started)

    def _serve(self, kind: int, started: list[ServerStart]) -> None:
        """Start jobs from the head of this type's queue while the head fits a server."""
        queue, rooms = self._queues[kind], self._rooms[kind]
        while queue and (server := rooms.first(self._sizes[job := queue[0]])) is not None:
            if self._stall and not self._is_idle(server) and self._inefficient(server):
                self._close(server)
                self._stalled[server] = True
                continue
            size = self._depart(kind, job)
            self._occupy(job, kind, size, server)
            self._free[server] -= size
            self._refresh(server)
            started.append((job, server))

    def _depart(self, kind: int, job: int) -> int:
        """Remove a waiting job and return its size."""
        self._queues[kind].remove(job)
        self._waiting[kind] -= 1
        return self._sizes.pop(job)

    def _occupy(self, job: int, kind: int, size: int, server: int) -> None:
        self._held[job] = kind, size
        self._running[server][kind] += 1
        self._taken[server][kind] += size

    def _is_idle(self, server: int) -> bool:
        """Whether no job of the types that the server serves runs on it."""
        chosen = self._configured[server]
        assert chosen is not None
        running = self._running[server]
        return not running[chosen.kind] and not (chosen.large and running[LARGE])

    def _inefficient(self, server: int) -> bool:
        chosen = self._configured[server]
        assert chosen is not None
        best, _ = heaviest(self._choices, self._waiting)
        return stalling.far_from_best(chosen.weight(self._waiting), best, self._stall)

    def _renew(self, server: int) -> None:
        """Give an empty server the configuration of maximum weight."""
        _, self._configured[server] = heaviest(self._choices, self._waiting)
        self._refresh(server)

    def _refresh(self, server: int) -> None:
        """Set the room for each type that the server serves: the unused part, at most the free room."""
        chosen = self._configured[server]
        if chosen is None or self._stalled[server]:
            return
        if not chosen.large:
            self._set_room(chosen.kind, server, self._capacity)
            return
        self._set_room(chosen.kind, server, self._capacity // 3)
        # A job of type 1 leaves too little of its part for a second one.
        self._set_room(LARGE, server, self._types.tops[LARGE])

    def _set_room(self, kind: int, server: int, part: int) -> None:
        room = max(0, min(part - self._taken[server][kind], self._free[server]))
        rooms = self._rooms[kind]
        before = rooms[server]
        if room != before:
            rooms.set(server, room)
        if room > before:
            self._changed.add(kind)

    def _clear(self, server: int) -> None:
        """The server is empty: drop its configuration and end a stall."""
        self._close(server)
        self._stalled[server] = False
        self._configured[server] = None
        heappush(self._empty, server)

    def _close(self, server: int) -> None:
        chosen = self._configured[server]
        assert chosen is not None
        self._rooms[chosen.kind].set(server, CLOSED)
        if chosen.large:
            self._rooms[LARGE].set(server, CLOSED)
