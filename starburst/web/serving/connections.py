"""Connections have deadlines and numbers, for whoever opens one is not known yet.

uvicorn waits for ever for a request that does not end, and accepts all that comes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from asyncio import TimerHandle, Transport
from collections import Counter
from contextlib import suppress
from enum import Enum
from http import HTTPStatus
from typing import Any, cast

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from starburst.web.middleware import HEADERS
from starburst.web.serving.peers import peer_uid, source_of

log = structlog.get_logger()

#: How long the kernel tries to hand on what the other end does not take, wall seconds.
STALL_S = 75.0
#: How long a connection that is told to go may take to hear it, wall seconds.
FLUSH_S = 2.0
#: Wall seconds in which refused connections are said once.
SAY_S = 60.0


class ConnectionRegistry:
    """The open connections. Where there are too many, the one that has waited longest for a request goes.

    So whoever opens connections and says nothing is in nobody's way but its own.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._all = set[Connection]()
        self._by_source = Counter[str]()
        #: Those without a whole request, the longest waiting first.
        self._waiting: dict[Connection, None] = {}
        self._said_at = -SAY_S

    def enter(self, new: Connection) -> str:
        """Count a connection; why there is no room for it, or "" if there is."""
        own = self._by_source[new.source] >= self._most_of_one
        if own or len(self._all) >= self._most:
            oldest = next((it for it in self._waiting if not own or it.source == new.source), None)
            self._say(new.source)
            if oldest is None:
                who, key = ("you have", "connections_per_address") if own else ("there are", "connections")
                return f"{who} too many connections; close some; http.{key} allows more"
            self.leave(oldest)
            oldest.transport.abort()
        self._all.add(new)
        self._by_source[new.source] += 1
        return ""

    def waits(self, one: Connection) -> None:
        """It waits for a request; what it said of one so far changes nothing."""
        if one in self._all:
            self._waiting.setdefault(one)

    def is_asked(self, one: Connection) -> None:
        """It has a request."""
        self._waiting.pop(one, None)

    def leave(self, one: Connection) -> None:
        """It is gone; doing it twice is doing it once."""
        if one in self._all:
            self._all.remove(one)
            self._waiting.pop(one, None)
            self._by_source[one.source] -= 1
            if not self._by_source[one.source]:
                del self._by_source[one.source]

    def _say(self, source: str) -> None:
        now = time.monotonic()
        if now - self._said_at >= SAY_S:
            self._said_at = now
            log.warning("http-full", open=len(self._all), source=source, of_source=self._by_source[source])


class ConnectionPhase(Enum):
    """What a connection is about."""

    HEADERS = "headers"
    BODY = "body"
    #: Of a body: it was answered already, mostly refused.
    REST = "rest"
    ANSWER = "answer"
    IDLE = "idle"


#: How long each may take, wall seconds.
PHASE_LIMIT_S = {
    ConnectionPhase.HEADERS: 10.0,
    ConnectionPhase.BODY: 30.0,
    ConnectionPhase.REST: 2.0,
    ConnectionPhase.IDLE: 75.0,
    ConnectionPhase.ANSWER: None,
}


class Connection(H11Protocol):
    """One connection, from its beginning to its end."""

    def __init__(self, *, registry: ConnectionRegistry, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._registry = registry
        #: What it is counted by.
        self.source = ""
        self._at: tuple[ConnectionPhase, object] | None = None
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """It is open."""
        super().connection_made(transport)
        if self.client is None or self.server is None:  # it is closed already
            self.transport.abort()
            return
        with suppress(OSError):  # or just now
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * STALL_S))
        uid = peer_uid(self.client, self.server)
        self.source = source_of(self.client, uid)
        self.app_state = {**self.app_state, "uid": uid}
        why = self._registry.enter(self)
        if why:
            self._last_word(503, why)
        else:
            self._mind()

    def data_received(self, data: bytes) -> None:
        """Some of a request has come."""
        super().data_received(data)
        self._mind()

    def on_response_complete(self) -> None:
        """A request is answered."""
        super().on_response_complete()
        self._mind()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The other end says no more; whether it may still want its answer."""
        cycle = self.cycle
        wants = self._answers() and not cycle.response_started and not cycle.more_body
        if wants:
            cycle.keep_alive = False
            self._within(PHASE_LIMIT_S[ConnectionPhase.BODY])
        return wants

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._within(None)
        self._registry.leave(self)
        super().connection_lost(exc)

    def _answers(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _phase(self) -> ConnectionPhase:
        if self.conn.their_state is h11.SEND_BODY:
            return ConnectionPhase.BODY if self._answers() else ConnectionPhase.REST
        if self._answers():
            return ConnectionPhase.ANSWER
        return (
            ConnectionPhase.HEADERS
            if self.cycle is None or self.conn.trailing_data[0]
            else ConnectionPhase.IDLE
        )

    def _mind(self) -> None:
        """Look what it is about now. More of the same gives it no more time."""
        at = self._phase(), self.cycle
        if at != self._at and not self.transport.is_closing():
            self._at = at
            (self._registry.is_asked if at[0] is ConnectionPhase.ANSWER else self._registry.waits)(self)
            self._within(PHASE_LIMIT_S[at[0]])

    def _within(self, limit_s: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if limit_s is None else self.loop.call_later(limit_s, self._too_late)

    def _too_late(self) -> None:
        if self._answers() or (self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]):
            self._last_word(408, "the request took too long to come; send it again")
        else:
            self._close()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's word on what is not HTTP."""
        self._last_word(400, msg)

    def _last_word(self, status: int, text: str) -> None:
        """Answer in place of the application, unless it has begun to, and close."""
        begun = self._answers() and self.cycle.response_started
        if self._answers():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not begun:
            body = json.dumps({"error": text}).encode()
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **HEADERS}
            more = {"Retry-After": "5"} if status == 503 else {}
            lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
            lines += [
                f"{name}: {value}" for name, value in {**headers, **more, "Connection": "close"}.items()
            ]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self._close()

    def _close(self) -> None:
        self.transport.close()
        self.loop.call_later(FLUSH_S, self.transport.abort)


def connections(registry: ConnectionRegistry) -> type[asyncio.Protocol]:
    """What uvicorn is to make of each connection."""

    def make(**uvicorns: Any) -> Connection:
        return Connection(registry=registry, **uvicorns)

    return cast("type[asyncio.Protocol]", make)
