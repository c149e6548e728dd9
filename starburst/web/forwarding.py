"""ASGI middleware of a replica that stands by: what changes something is done by the leader.

Questions are answered here, from the store that both share. What the forms of pages ask for is written into
it here, too, as commands do it: a session, and with it the token of its forms, is of one replica.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import structlog
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from starburst.store.errors import StoreError
from starburst.store.leader import LeaderRecord, leader_record
from starburst.web.auth import Authenticator
from starburst.web.context import AppContext
from starburst.web.errors import RETRY_S, HttpError, refused, told, unavailable

log = structlog.get_logger()

#: Methods that change something.
CHANGES = ("POST", "PUT")
#: Path of a run's report, which has a token of its own.
REPORT = re.compile("/api/v1/jobs/([^/]+)/attempts/[^/]+/progress")
#: Forms: sessions are of the replica that began them.
OWN = re.compile("/login|/logout|/submit|/dashboard/.*")
#: Marks a request that a replica has passed on; it is not passed on twice.
FORWARDED = "x-starburst-forwarded"
#: Headers that the leader is given, and those of its answer that are given back.
ASKED = ("authorization", "content-type", "accept", "user-agent")
ANSWERED = ("content-type", "retry-after", "www-authenticate")
#: Wall seconds: for a connection, and for each part of the answer.
CONNECT_S, READ_S = 3.0, 60.0

NOBODY = "no starburst leads now; one that stands by takes over within 15 s: ask again"


class ForwardToLeader:
    """Passes requests that change something on to the leader while this replica stands by."""

    def __init__(self, app: ASGIApp, app_context: AppContext, authenticator: Authenticator) -> None:
        self._app = app
        self._context = app_context
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        changes = scope["type"] == "http" and scope["method"] in CHANGES and not OWN.fullmatch(scope["path"])
        response = await self._elsewhere(Request(scope, receive)) if changes else None
        await (self._app if response is None else response)(scope, receive, send)

    async def _elsewhere(self, request: Request) -> Response | None:
        """The leader's answer, or a refusal; None if this replica leads."""
        try:
            record = await run_in_threadpool(leader_record, self._context.store)
        except StoreError as error:
            return unavailable(request, error) or told(request, 503, "the store does not say who leads")
        if record is not None and record.holder == self._context.replica:
            return None
        if record is None or not record.holder or FORWARDED in request.headers:
            return told(request, 503, NOBODY, {"Retry-After": str(RETRY_S)})
        if not record.address:
            return told(
                request, 503, f"{record.holder} leads, and has no API (http.enabled); ask where it runs"
            )
        try:
            await run_in_threadpool(self._admit, request)
        except HttpError as refusal:
            return refused(request, refusal)
        return await _ask(record, request, self._context.replica)

    def _admit(self, request: Request) -> None:
        """Refuse whom this replica would: without a token the leader trusts this machine, not the sender.

        Raises:
            HttpError: the sender may not.
        """
        report = REPORT.fullmatch(request.scope["path"])
        if report is None:
            self._authenticator.authenticate(request)
        else:
            self._authenticator.authenticate_report(request, report[1])


def _url_at_leader(record: LeaderRecord, request: Request) -> httpx.URL:
    """The URL of a request at the leader, whatever the sender takes for a path.

    Raises:
        httpx.InvalidURL: it is none.
    """
    path: bytes = request.scope["raw_path"]
    if not path.startswith(b"/"):  # `@host/…` behind an address would name another host
        raise httpx.InvalidURL("the path of a request begins with /")
    query = request.scope["query_string"]
    return httpx.URL(record.address).copy_with(raw_path=path + (b"?" + query if query else b""))


async def _ask(record: LeaderRecord, request: Request, replica: str) -> Response:
    try:
        url = _url_at_leader(record, request)
    except (httpx.InvalidURL, UnicodeDecodeError) as error:
        return told(request, 400, f"the address is malformed: {error}")
    headers = {name: request.headers[name] for name in ASKED if name in request.headers}
    limits = httpx.Timeout(READ_S, connect=CONNECT_S)
    try:
        async with httpx.AsyncClient(timeout=limits, trust_env=False) as client:
            said = await client.request(
                request.method,
                url,
                headers={**headers, FORWARDED: replica.encode("ascii", "replace").decode()},
                content=_body(request),
            )
    except httpx.ConnectError:
        text = f"{record.holder}, which leads, does not answer; another one takes over within 15 s: ask again"
        return told(request, 503, text, {"Retry-After": str(RETRY_S)})
    except httpx.HTTPError as error:
        log.warning("leader-not-heard", leader=record.holder, error=repr(error))
        text = f"{record.holder} leads and has not answered: look whether it is done before you repeat it"
        return told(request, 503, text)
    kept = {name: said.headers[name] for name in ANSWERED if name in said.headers}
    return Response(said.content, said.status_code, kept)


async def _body(request: Request) -> AsyncIterator[bytes]:
    """The body as it comes; how long it may be the leader says."""
    async for part in request.stream():
        yield part
