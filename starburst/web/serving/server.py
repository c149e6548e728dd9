"""The uvicorn server of the API: its configuration, and its end."""

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
from starburst.web.forwarding import ForwardToLeader
from starburst.web.middleware import OwnerOnly, SecurityHeaders
from starburst.web.serving.connections import PHASE_LIMIT_S, ConnectionPhase, ConnectionRegistry, connections
from starburst.web.serving.listen import BACKLOG, url_of

#: Wall seconds that streams get to end when the server stops.
DRAIN_S = 3.0
START_S = 10.0
#: File descriptors that are not connections: the store, followed logs, parsed files.
OTHER_FILES = 256


class Server(uvicorn.Server):
    """A uvicorn server without signal handlers: the caller stops it by `end`."""

    def __init__(self, app_context: AppContext, settings: HttpConfig) -> None:
        app = make_app(app_context, settings)
        self._services = app.state.services
        authenticator = self._services.authenticator
        led: ASGIApp = ForwardToLeader(app, app_context, authenticator) if app_context.replica else app
        outer: ASGIApp = OwnerOnly(led, authenticator) if settings.is_local else led
        most = max(2, min(settings.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES))
        idle_s = PHASE_LIMIT_S[ConnectionPhase.IDLE]
        assert idle_s is not None
        super().__init__(
            uvicorn.Config(
                SecurityHeaders(outer),
                http=connections(ConnectionRegistry(most, min(most, settings.connections_per_address))),
                log_config=None,
                log_level="critical",
                loop="asyncio",  # uvloop would replace the event loop policy of the whole process
                access_log=False,
                lifespan="off",
                ws="none",
                backlog=BACKLOG,
                proxy_headers=False,  # rate limits count by the peer address
                server_header=False,
                timeout_keep_alive=int(idle_s) + 5,  # the deadline of `connections` comes first
                timeout_graceful_shutdown=int(DRAIN_S),
            )
        )

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Install no signal handlers."""
        return nullcontext()

    def end(self) -> None:
        """End the streams, then the server. Thread-safe."""
        self._services.closing.set()
        self.should_exit = True


@contextmanager
def serving(app_context: AppContext, settings: HttpConfig, sock: socket.socket) -> Iterator[str]:
    """Serve from a thread of this process, for tools and tests; yields the URL."""
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
