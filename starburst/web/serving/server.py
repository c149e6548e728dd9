"""The HTTP API on a bound socket: what uvicorn is told, and its end."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import uvicorn
from starlette.types import ASGIApp

from starburst.app.config.http import HttpConfig
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.middleware import OwnerOnly, SecurityHeaders
from starburst.web.serving.connections import PHASE_LIMIT_S, ConnectionPhase, ConnectionRegistry, connections
from starburst.web.serving.listen import BACKLOG, url_of

#: How long streams may take to end when the server does, wall seconds.
DRAIN_S = 3.0
START_S = 10.0
#: Files that are open for other things than connections: the store, logs that are followed, what is parsed.
OTHER_FILES = 256


class Server(uvicorn.Server):
    """Serves until it is told to end; signals are the business of whoever runs it."""

    def __init__(self, app_context: AppContext, settings: HttpConfig) -> None:
        app = make_app(app_context, settings)
        self._services = app.state.services
        outer: ASGIApp = OwnerOnly(app, self._services.authenticator) if settings.is_local else app
        most = max(2, min(settings.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES))
        idle_s = PHASE_LIMIT_S[ConnectionPhase.IDLE]
        assert idle_s is not None
        super().__init__(
            uvicorn.Config(
                SecurityHeaders(outer),
                http=connections(ConnectionRegistry(most, min(most, settings.connections_per_address))),
                log_config=None,
                log_level="critical",
                loop="asyncio",  # uvloop's policy would be that of the whole process
                access_log=False,
                lifespan="off",
                ws="none",
                backlog=BACKLOG,
                proxy_headers=False,  # limits count by the address that really sent it
                server_header=False,
                timeout_keep_alive=int(idle_s) + 5,  # ours comes first
                timeout_graceful_shutdown=int(DRAIN_S),
            )
        )

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """None."""
        return nullcontext()

    def end(self) -> None:
        """Let streams end, and then the server; any thread may ask."""
        self._services.closing.set()
        self.should_exit = True


@contextmanager
def serving(app_context: AppContext, settings: HttpConfig, sock: socket.socket) -> Iterator[str]:
    """Serve from a thread of this process, for programs that have no other business; the address."""
    server = Server(app_context, settings)
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
        server.end()
        thread.join(2 * DRAIN_S)
