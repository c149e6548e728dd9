"""Serves the HTTP API from a thread of its own, so that no request holds up the scheduler's loop."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import structlog
import uvicorn
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from starburst.app.config_http import HttpConfig
from starburst.store.errors import StoreError
from starburst.web.errors import answer, not_now
from starburst.web.gate import Gate
from starburst.web.office import Office
from starburst.web.site import HEALTH, make_app

log = structlog.get_logger()

#: How long streams may take to end when the server does, wall seconds.
DRAIN_S = 3.0
START_S = 10.0
#: The kernel's tables of connections, and the state of those that are open at both ends.
ESTABLISHED = "01"
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


@contextmanager
def serving(office: Office, settings: HttpConfig, sock: socket.socket) -> Iterator[str]:
    """Serve on a bound socket; its address, such as http://127.0.0.1:8585."""
    app = make_app(office, settings)
    config = uvicorn.Config(
        OwnerOnly(app, app.state.desk.gate) if settings.is_local else app,
        log_config=None,
        log_level="critical",
        loop="asyncio",  # uvloop's policy would be that of the whole process
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,  # limits count by the address that really sent it
        server_header=False,
        timeout_graceful_shutdown=int(DRAIN_S),
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([sock],), name="http", daemon=True)
    thread.start()
    give_up = time.monotonic() + START_S
    while not server.started and thread.is_alive() and time.monotonic() < give_up:
        time.sleep(0.01)
    if not server.started:
        raise RuntimeError("the HTTP API did not start")
    try:
        yield url_of(sock)
    finally:
        app.state.desk.closing.set()
        server.should_exit = True
        thread.join(2 * DRAIN_S)


def url_of(sock: socket.socket) -> str:
    """Where a socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class OwnerOnly:
    """While no token is needed, lets in only who runs this process, and root.

    Other users of the machine reach its loopback too, and jobs run with the rights of who runs Starburst.
    """

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asks = scope["type"] == "http" and scope["path"] != HEALTH
        try:
            anothers = asks and await run_in_threadpool(self._is_anothers, scope)
        except StoreError as error:
            await (not_now(error) or answer(503, "nobody can tell who may ask"))(scope, receive, send)
            return
        if anothers:
            said = "another user runs this Starburst, which has no tokens; ask them for one"
            await answer(403, said)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_anothers(self, scope: Scope) -> bool:
        if not self._gate.is_open():
            return False
        return peer_uid(scope["client"], scope["server"]) not in (0, os.getuid())


def peer_uid(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user at the other end of a connection on this machine; None if it is not open any more."""
    ends = (_as_listed(*client), _as_listed(*server))
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # One that was closed has no owner any more, and counts as root's.
            if (fields[1], fields[2]) == ends and fields[3] == ESTABLISHED:
                return int(fields[7])
    return None


def _as_listed(host: str, port: int) -> str:
    """An end of a connection as /proc/net/tcp has it: words of the address in the machine's byte order."""
    packed = ip_address(host).packed
    words = (packed[i : i + 4] for i in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{port:04X}"
