"""What is settled before the API is served, and without what it takes to serve it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from starburst.app.config.http import PORT, HttpConfig
from starburst.app.errors import UserError
from starburst.store import tokens
from starburst.web.context import AppContext

#: Connections that the kernel takes while nobody does; the API may be starting anew.
BACKLOG = 512


@contextmanager
def listening(settings: HttpConfig) -> Iterator[socket.socket | None]:
    """The socket of the API, taken before anything else begins; None if it is not enabled.

    Raises:
        UserError: the address is not to be had.
    """
    if not settings.enabled:
        yield None
        return
    with _bound(settings) as sock:
        yield sock


def _bound(settings: HttpConfig) -> socket.socket:
    if settings.port is not None:
        return _bind(settings.host, settings.port)
    try:
        return _bind(settings.host, PORT)
    except UserError:
        return _bind(settings.host, 0)


def _bind(host: str, port: int) -> socket.socket:
    try:
        (family, kind, number, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise UserError(f"http.host: {host}: is no address of this machine ({error.strerror})") from None
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        why = (error.strerror or str(error)).lower()
        mend = "set http.port to another one, 0 for any, or http.enabled to false"
        raise UserError(f"http.port: {port}: cannot be had at {host} ({why}); {mend}") from None
    return sock


def url_of(sock: socket.socket) -> str:
    """Where a socket is reached, such as http://127.0.0.1:8585."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def refuse_insecure_bind(app_context: AppContext, settings: HttpConfig) -> None:
    """Refuse a door that others see and nobody can open: but for runs that report, whose tokens are not kept.

    Raises:
        UserError: others than this machine reach the API, and there is no token.
    """
    for_runs = settings.report_url is not None
    if (
        settings.enabled
        and not settings.is_local
        and not for_runs
        and not tokens.any_exist(app_context.store)
    ):
        raise UserError(
            f"http.host: {settings.host}: others reach this, and there is no token; make one with "
            "starburst token create NAME --role admin, or set http.host to 127.0.0.1"
        )
