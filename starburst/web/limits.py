"""Limits per client: a token bucket of requests, and a number of open streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock

from starburst.web.errors import HttpError

#: Clients remembered at a time.
MAX_CLIENTS = 10_000


class RateLimits:
    """The limits of all clients. Thread-safe."""

    def __init__(self, per_second: float, streams: int, clock: Callable[[], float]) -> None:
        """A bucket holds two seconds' worth of requests; `clock` is monotonic, in seconds."""
        self._per_second = per_second
        self._room = max(1.0, 2 * per_second)
        self._most_streams = streams
        self._clock = clock
        #: Client to (requests left, time of that count). An unknown client has a full bucket.
        self._left: dict[str, tuple[float, float]] = {}
        self._streams = Counter[str]()
        self._lock = Lock()

    def charge(self, client: str) -> None:
        """Count one request.

        Raises:
            HttpError: 429, the bucket is empty; `Retry-After` is the time until the next request may come.
        """
        with self._lock:
            now = self._clock()
            left, at = self._left.pop(client, (self._room, now))
            left = min(self._room, left + (now - at) * self._per_second)
            self._left[client] = (max(0.0, left - 1), now)
            if len(self._left) > MAX_CLIENTS:  # the least recently seen client
                del self._left[next(iter(self._left))]
        if left < 1:
            wait_s = (1 - left) / self._per_second
            mend = f"wait {wait_s:.2f} s; http.requests_per_second allows more"
            raise HttpError(429, f"too many requests: {mend}", {"Retry-After": str(max(1, round(wait_s)))})

    def take_stream(self, client: str) -> None:
        """Count an open stream; `give_stream` undoes it.

        Raises:
            HttpError: 429, the client has too many open streams.
        """
        with self._lock:
            if self._streams[client] >= self._most_streams:
                raise HttpError(
                    429,
                    f"too many streams: {self._most_streams} are open; end one; http.streams allows more",
                    {"Retry-After": "5"},
                )
            self._streams[client] += 1

    def give_stream(self, client: str) -> None:
        """Count the end of a stream."""
        with self._lock:
            self._streams[client] -= 1
            if not self._streams[client]:
                del self._streams[client]
