"""Who has logged in with a browser: random ids in cookies, and nothing but their hashes here.

They are in memory only, so there is nothing to steal from the store, and a restart logs everybody out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from fastapi import Request

from starburst.store.tokens import hashed

#: How long a session lasts, wall seconds.
LIFE_S = 12 * 3600.0
#: Sessions at a time; the oldest one ends for a new one.
MOST = 1000


def cookie_name(request: Request) -> str:
    """Of the cookie; with the port, which cookies do not tell apart: a host may have several of us."""
    server = request.scope.get("server")
    return f"starburst_session_{server[1] if server else 0}"


def cookies(request: Request) -> list[str]:
    """All ids that a browser sends under our name: another port of this host may have planted some."""
    name, found = cookie_name(request), list[str]()
    for header in request.headers.getlist("cookie"):
        for part in header.split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                found.append(value)
    return found


class _Session(NamedTuple):
    #: As it is kept.
    token_hash: str
    ends_at: float


class Sessions:
    """The sessions of one server; any thread may ask."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._lock = Lock()
        #: By the hash of their ids, the oldest first.
        self._known: dict[str, _Session] = {}

    def begin(self, secret: str) -> str:
        """A new session of the token with this secret; its id, which is nowhere else."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._known[hashed(made)] = _Session(hashed(secret), self._wall() + LIFE_S)
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]
        return made

    def token_hash(self, id_: str) -> str:
        """The hash of the token that a session was begun with; "" if there is none, or not any more."""
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
        """Log out."""
        with self._lock:
            self._known.pop(hashed(id_), None)
