"""Routers on a real server, as a browser or a scraper meets them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import APIRouter, FastAPI


@contextmanager
def served(*routers: APIRouter) -> Iterator[str]:
    """The address of an app with these routers, on a free port of the loopback."""
    app = FastAPI()
    for router in routers:
        app.include_router(router)
    with serving(app) as url:
        yield url


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """The address of an app, on a free port of the loopback."""
    # Its own loop, not uvloop, whose policy would be that of the whole process.
    own = {"loop": "asyncio", "lifespan": "off", "ws": "none", "timeout_graceful_shutdown": 1}
    config = uvicorn.Config(app, log_config=None, **own)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # who connects before it is up waits in line
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
