"""VQS: a queue per type of size, and servers that keep a configuration until they are empty (section V)."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from starburst.policy.disciplines import stalling
from starburst.policy.disciplines.configurations import LARGE, Configuration, heaviest, reduced
from starburst.policy.disciplines.discipline import Start
from starburst.policy.disciplines.partition import Partition
from starburst.policy.disciplines.rooms import CLOSED, FirstRoom


class VirtualQueues:
    """Serves at least 2/3 of what any policy can (theorem 3), if no size is below 2⁻ᴶ of the capacity.

    An empty server takes the heaviest configuration when something waits. One with a slot for type 1 keeps
    2/3 of itself for one job of that type; the rest goes to the other type, as many as fit, each queue in
    order of arrival and each head to the first server that serves its type and has room. With `stall` > 0 a
    server whose configuration weighs less than that share of the heaviest takes nothing until it is empty.
    """

    def __init__(self, servers: int, capacity: int, *, levels: int, stall: float = 0.0) -> None:
        self._capacity = capacity
        self._stall = stall
        self._types = Partition(capacity, levels)
        self._choices = reduced(levels)
        self._queues: list[deque[tuple[int, int]]] = [deque() for _ in range(len(self._types))]
        self._waiting = [0] * len(self._types)
        #: Per type, the room for it on each server that serves it.
        self._rooms = [FirstRoom(servers, CLOSED) for _ in range(len(self._types))]
        self._configured: list[Configuration | None] = [None] * servers
        self._stalled = [False] * servers
        self._running = [0] * servers
        self._empty = list(range(servers))
        heapify(self._empty)
        self._held: dict[int, tuple[int, int]] = {}
        #: Types with a new head or with new room.
        self._changed: set[int] = set()

    def __len__(self) -> int:
        return sum(self._waiting)

    def configuration(self, server: int) -> Configuration | None:
        """The active configuration; None while the server is empty."""
        return self._configured[server]

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue of its type."""
        kind = self._types.kind(size)
        self._queues[kind].append((job, self._types.rounded(size)))
        self._waiting[kind] += 1
        if self._waiting[kind] == 1:
            self._changed.add(kind)

    def leave(self, job: int, server: int) -> None:
        """A job is done."""
        kind, size = self._held.pop(job)
        self._running[server] -= 1
        if not self._running[server]:
            self._clear(server)
        elif not self._stalled[server]:
            rooms = self._rooms[kind]
            rooms.set(server, rooms[server] + size)
            self._changed.add(kind)

    def start(self) -> list[Start]:
        """Jobs that start now: on servers that are under way, then on empty ones, one after the other."""
        started: list[Start] = []
        while True:
            while self._changed:
                self._serve(self._changed.pop(), started)
            if not self._empty or not any(self._waiting):
                return started
            self._renew(heappop(self._empty))

    def _serve(self, kind: int, started: list[Start]) -> None:
        """Heads of this queue go while one fits."""
        queue, rooms = self._queues[kind], self._rooms[kind]
        while queue and (server := rooms.first(queue[0][1])) is not None:
            if self._stall and self._running[server] and self._inefficient(server):
                self._close(server)
                self._stalled[server] = True
                continue
            job, size = queue.popleft()
            self._waiting[kind] -= 1
            self._held[job] = kind, size
            self._running[server] += 1
            # What a job of type 1 leaves of its slot is too small for another.
            rooms.set(server, rooms[server] - size)
            started.append((job, server))

    def _inefficient(self, server: int) -> bool:
        chosen = self._configured[server]
        assert chosen is not None
        best, _ = heaviest(self._choices, self._waiting)
        return stalling.far_from_best(chosen.weight(self._waiting), best, self._stall)

    def _renew(self, server: int) -> None:
        """An empty server takes the heaviest configuration."""
        _, chosen = heaviest(self._choices, self._waiting)
        self._configured[server] = chosen
        self._rooms[chosen.kind].set(server, self._capacity // 3 if chosen.large else self._capacity)
        self._changed.add(chosen.kind)
        if chosen.large:
            self._rooms[LARGE].set(server, self._types.tops[LARGE])
            self._changed.add(LARGE)

    def _clear(self, server: int) -> None:
        """The server is empty."""
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
