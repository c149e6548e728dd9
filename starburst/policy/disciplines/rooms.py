"""The free room of all servers, indexed for first-fit and for best-fit search."""

from __future__ import annotations

from sortedcontainers import SortedList

#: Room of a server that accepts no jobs.
CLOSED = -1


class FirstRoom:
    """Finds the first server with sufficient room: a tree of maxima, O(log servers) per call."""

    def __init__(self, servers: int, room: int) -> None:
        self._leaves = 1 << (servers - 1).bit_length()
        self._most = [CLOSED] * (2 * self._leaves)
        for server in range(servers):
            self.set(server, room)

    def __getitem__(self, server: int) -> int:
        return self._most[self._leaves + server]

    def set(self, server: int, room: int) -> None:
        """Set the room of a server."""
        most, node = self._most, self._leaves + server
        most[node] = room
        while node > 1:
            other = most[node ^ 1]
            node >>= 1
            room = max(room, other)
            if most[node] == room:
                return
            most[node] = room

    def first(self, size: int) -> int | None:
        """The first server with room ≥ size > 0; None if there is none."""
        most = self._most
        if most[1] < size:
            return None
        node = 1
        while node < self._leaves:
            node *= 2
            if most[node] < size:
                node += 1
        return node - self._leaves


class TightRoom:
    """Finds the server with the least sufficient room; ties go to the first server."""

    def __init__(self, servers: int, room: int) -> None:
        self._rooms = [CLOSED] * servers
        #: (room, server) of every server that is open.
        self._order: SortedList = SortedList()
        for server in range(servers):
            self.set(server, room)

    def __getitem__(self, server: int) -> int:
        return self._rooms[server]

    def set(self, server: int, room: int) -> None:
        """Set the room of a server."""
        before = self._rooms[server]
        if before != CLOSED:
            self._order.remove((before, server))
        if room != CLOSED:
            self._order.add((room, server))
        self._rooms[server] = room

    def tightest(self, size: int) -> int | None:
        """The server with the least room ≥ size, the first of equals; None if there is none."""
        number = self._order.bisect_left((size, 0))
        return self._order[number][1] if number < len(self._order) else None

    @property
    def most(self) -> int:
        """The room of the emptiest open server; CLOSED if none is open."""
        return self._order[-1][0] if self._order else CLOSED
