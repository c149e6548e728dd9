"""Limits on unauthenticated connections: deadlines per phase, and the number of connections per source.

uvicorn alone waits without limit for the end of a request and accepts every connection.
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

#: TCP_USER_TIMEOUT: seconds without an acknowledgement after which the kernel drops a connection.
STALL_S = 75.0
#: Seconds between closing a connection and aborting it.
FLUSH_S = 2.0
#: Wall seconds between two log lines about refused connections.
SAY_S = 60.0


class ConnectionRegistry:
    """The open connections.

    When the limit is reached, the connection that has waited longest for a request is closed, so idle
    connections of one source cannot block others.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._all = set[Connection]()
        self._by_source = Counter[str]()
        #: Connections without a complete request, longest waiting first.
        self._waiting: dict[Connection, None] = {}
        self._said_at = -SAY_S

    def enter(self, new: Connection) -> str:
        """Count a new connection; the reason of a refusal, or ""."""
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

    def awaits_request(self, one: Connection) -> None:
        """Mark a connection as waiting for a request; it keeps its place among the waiting ones."""
        if one in self._all:
            self._waiting.setdefault(one)

    def has_request(self, one: Connection) -> None:
        """Mark a connection as having a complete request."""
        self._waiting.pop(one, None)

    def leave(self, one: Connection) -> None:
        """Remove a closed connection; idempotent."""
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
    """What a connection waits for."""

    HEADERS = "headers"
    BODY = "body"
    #: The rest of a body whose request is answered already, mostly refused.
    REST = "rest"
    ANSWER = "answer"
    IDLE = "idle"


#: Deadline of each phase, seconds; None is no deadline.
PHASE_LIMIT_S = {
    ConnectionPhase.HEADERS: 10.0,
    ConnectionPhase.BODY: 30.0,
    ConnectionPhase.REST: 2.0,
    ConnectionPhase.IDLE: 75.0,
    ConnectionPhase.ANSWER: None,
}


class Connection(H11Protocol):
    """One HTTP/1.1 connection with a deadline for its current phase."""

    def __init__(self, *, registry: ConnectionRegistry, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._registry = registry
        #: Key of the limit per source: a local user, an address or its /64.
        self.source = ""
        self._at: tuple[ConnectionPhase, object] | None = None
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the first deadline, or refuse the connection."""
        super().connection_made(transport)
        if self.client is None or self.server is None:  # closed already
            self.transport.abort()
            return
        with suppress(OSError):  # closed in the meantime
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
        """Pass data to uvicorn and update the phase."""
        super().data_received(data)
        self._mind()

    def on_response_complete(self) -> None:
        """Update the phase when a request is answered."""
        super().on_response_complete()
        self._mind()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The peer closed its sending side; True keeps the connection open for a pending answer."""
        cycle = self.cycle
        wants = self._answers() and not cycle.response_started and not cycle.more_body
        if wants:
            cycle.keep_alive = False
            self._within(PHASE_LIMIT_S[ConnectionPhase.BODY])
        return wants

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline and free the slot of the connection."""
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
        """Restart the deadline when the phase or the request changes, but not for more data of the same
        phase.
        """
        at = self._phase(), self.cycle
        if at != self._at and not self.transport.is_closing():
            self._at = at
            (
                self._registry.has_request
                if at[0] is ConnectionPhase.ANSWER
                else self._registry.awaits_request
            )(self)
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
        """Replaces uvicorn's answer to malformed HTTP."""
        self._last_word(400, msg)

    def _last_word(self, status: int, text: str) -> None:
        """Send an error in place of the application, unless an answer has begun, and close the connection."""
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
    """The protocol factory for uvicorn."""

    def make(**uvicorns: Any) -> Connection:
        return Connection(registry=registry, **uvicorns)

    return cast("type[asyncio.Protocol]", make)
