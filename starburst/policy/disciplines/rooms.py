"""The room on every server, and the two servers a job may want: the first that holds it, and the tightest."""

from __future__ import annotations

from starburst.policy.disciplines.intset import IntSet

#: The room of a server that takes no jobs.
CLOSED = -1


class FirstRoom:
    """Finds the first server with enough room: a tree of maxima, O(log servers) per call."""

    def __init__(self, servers: int, room: int) -> None:
        self._leaves = 1 << (servers - 1).bit_length()
        self._most = [CLOSED] * (2 * self._leaves)
        for server in range(servers):
            self.set(server, room)

    def __getitem__(self, server: int) -> int:
        return self._most[self._leaves + server]

    def set(self, server: int, room: int) -> None:
        """The room changed."""
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
        """The first server with room ≥ size > 0."""
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
    """Finds the server with the least room that is enough, the first of those with equal room."""

    def __init__(self, servers: int, room: int) -> None:
        self._servers = servers
        self._rooms = [CLOSED] * servers
        #: Members are room · servers + server.
        self._top = (room + 1) * servers - 1
        self._order = IntSet(self._top)
        for server in range(servers):
            self.set(server, room)

    def __getitem__(self, server: int) -> int:
        return self._rooms[server]

    def set(self, server: int, room: int) -> None:
        """The room changed."""
        before = self._rooms[server]
        if before != CLOSED:
            self._order.remove(before * self._servers + server)
        if room != CLOSED:
            self._order.add(room * self._servers + server)
        self._rooms[server] = room

    def tightest(self, size: int) -> int | None:
        """The server that this size fills best."""
        found = self._order.at_least(size * self._servers)
        return None if found is None else found % self._servers

    @property
    def most(self) -> int:
        """The room of the emptiest server."""
        found = self._order.at_most(self._top)
        return CLOSED if found is None else found // self._servers
