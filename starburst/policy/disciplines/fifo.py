"""FIFO-FF: first in, first out; each job on the first server that holds it."""

from __future__ import annotations

from collections import deque

from starburst.policy.disciplines.discipline import ServerStart
from starburst.policy.disciplines.rooms import FirstRoom


class FifoFirstFit:
    """The baseline of section VII-B: the first job waits until a server holds it and blocks later ones."""

    def __init__(self, servers: int, capacity: int) -> None:
        self._rooms = FirstRoom(servers, capacity)
        self._queue: deque[tuple[int, int]] = deque()
        self._held: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue."""
        self._queue.append((job, size))

    def leave(self, job: int, server: int) -> None:
        """A job has ended."""
        self._rooms.set(server, self._rooms[server] + self._held.pop(job))

    def start(self) -> list[ServerStart]:
        """The jobs that start now, with their servers."""
        started: list[ServerStart] = []
        while self._queue:
            job, size = self._queue[0]
            server = self._rooms.first(size)
            if server is None:
                break
            self._queue.popleft()
            self._held[job] = size
            self._rooms.set(server, self._rooms[server] - size)
            started.append((job, server))
        return started
