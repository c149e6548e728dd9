"""The listening socket of the API, and the refusal of insecure binds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from starburst.app.config.http import PORT, HttpConfig
from starburst.app.errors import UserError
from starburst.store import tokens
from starburst.web.context import AppContext

#: Connections that the kernel queues, for example while the API process restarts.
BACKLOG = 512


@contextmanager
def listening(settings: HttpConfig) -> Iterator[socket.socket | None]:
    """The bound socket of the API; None if the API is disabled.

    Raises:
        UserError: the address cannot be bound.
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
        raise UserError(f"http.port: {port}: cannot be used at {host} ({why}); {mend}") from None
    return sock


def url_of(sock: socket.socket) -> str:
    """The URL of a bound socket, such as http://127.0.0.1:8585."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def refuse_insecure_bind(app_context: AppContext, settings: HttpConfig) -> None:
    """Refuse a non-loopback bind while no API token exists; a bind for progress reports of runs is allowed.

    Raises:
        UserError: other machines could reach the API, and no token exists.
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
