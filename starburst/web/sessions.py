"""Browser sessions: random ids in cookies; the server keeps only their hashes.

Sessions are kept in memory: a copy of the store contains none, and a restart ends them all.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from fastapi import Request

from starburst.store.tokens import hashed

#: Lifetime of a session, wall seconds.
LIFE_S = 12 * 3600.0
#: Sessions at a time; a new one replaces the oldest.
MOST = 1000


def cookie_name(request: Request) -> str:
    """The name of the session cookie.

    It contains the port, because browsers send cookies to all ports of a host.
    """
    server = request.scope.get("server")
    return f"starburst_session_{server[1] if server else 0}"


def cookies(request: Request) -> list[str]:
    """All values of our cookie in a request: servers on other ports of the host may have set some."""
    name, found = cookie_name(request), list[str]()
    for header in request.headers.getlist("cookie"):
        for part in header.split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                found.append(value)
    return found


class _Session(NamedTuple):
    #: SHA-256 of the token's secret.
    token_hash: str
    ends_at: float


class Sessions:
    """The sessions of one server. Thread-safe."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._lock = Lock()
        #: By the hash of the session id, oldest first.
        self._known: dict[str, _Session] = {}

    def begin(self, secret: str) -> str:
        """Begin a session for the token with this secret; its id, which is not stored."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._known[hashed(made)] = _Session(hashed(secret), self._wall() + LIFE_S)
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]
        return made

    def token_hash(self, id_: str) -> str:
        """The hash of the token of a session; "" if the session is unknown or has expired."""
        key = hashed(id_)
        with self._lock:
            session = self._known.get(key)
            if session is None:
                return ""
            if self._wall() >= session.ends_at:
                del self._known[key]
                return ""
            return session.token_hash

    def end(self, id_: str) -> None:
        """End a session."""
        with self._lock:
            self._known.pop(hashed(id_), None)
