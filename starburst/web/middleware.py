"""ASGI middleware: security headers on every answer, and the check of the local user."""

from __future__ import annotations

import os

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starburst.store.errors import StoreError
from starburst.web.auth import Authenticator
from starburst.web.errors import told, unavailable

#: Paths of the health checks, which require no token: of the scheduler, and whether it leads.
HEALTH = "/healthz"
LEADING = "/healthz/leader"
#: No MIME sniffing, no frames, no referrer to other sites. `no-referrer` would also remove the `Origin` of
#: our own forms, by which requests of other sites are recognised.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
}


class SecurityHeaders:
    """Adds `HEADERS` to every answer, including errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, sent)


class OwnerOnly:
    """While no token is required, accepts only requests of the user that runs this process, and of root.

    Other users of the machine can reach the loopback address too, and jobs run with the rights of this
    user.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        others = scope["type"] == "http" and scope["state"]["uid"] not in (0, os.getuid())
        try:
            refused = (
                others
                and scope["path"] not in (HEALTH, LEADING)
                and await run_in_threadpool(self._authenticator.is_open)
            )
        except StoreError as error:
            request, unknown = Request(scope), "nobody can tell who may ask"
            await (unavailable(request, error) or told(request, 503, unknown))(scope, receive, send)
            return
        if refused:
            said = "another user runs this Starburst, which has no tokens; ask them for one"
            await told(Request(scope), 403, said)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
