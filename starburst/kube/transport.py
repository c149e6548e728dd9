"""HTTP to one API server: connections, credentials that are renewed, and broken connections as errors.

Only the transport and the credentials are the client library's.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException
from multidict import CIMultiDict

from starburst.kube.errors import ApiError, ApiUnreachableError, KubeCredentialsError, refusal
from starburst.kube.resources import Object

log = structlog.get_logger()

#: Errors of calls that never left this machine: no connection was made.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user and groups in whose name a call is made; it needs the right `impersonate`."""

    user: str
    groups: tuple[str, ...] = ()

    def headers(self) -> list[tuple[str, str]]:
        """The headers of such a call."""
        return [("Impersonate-User", self.user), *(("Impersonate-Group", group) for group in self.groups)]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP call; `path` is without the server's address."""

    method: str
    path: str
    timeout: aiohttp.ClientTimeout
    query: Mapping[str, str] | None = None
    body: Any = None
    content_type: str = "application/json"
    impersonation: Impersonation | None = None


class Transport:
    """The connections to one server. To be closed.

    When the server refuses the credentials (401), `renew` makes a client with new ones, once per call. The
    client that it replaces is closed after the last call that uses it.
    """

    def __init__(self, client: ApiClient, renew: Callable[[], Awaitable[ApiClient]] | None) -> None:
        self.client = client
        self.renew = renew
        self._renewing = asyncio.Lock()
        self._renewals_failed = 0
        #: Calls under way of each client.
        self._calls: Counter[ApiClient] = Counter()

    async def close(self) -> None:
        """Drop every connection."""
        for client in {self.client, *self._calls}:
            await client.close()  # type: ignore[no-untyped-call]

    @asynccontextmanager
    async def response(self, request: HttpRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer below 400, closed at the end of the block.

        Raises:
            ApiError: the server refused.
            UnreachableError: the connection broke, also while the answer was read.
        """
        url = request.path + (f"?{urlencode(request.query)}" if request.query else "")
        for tried in (False, True):
            client = self.client
            async with self._sent(client, url, request) as response:
                if response.status < 400:
                    yield response
                    return
                error = _error(response, await response.read())
            if error.status != 401 or tried or not await self._renewed(client):
                raise error

    @asynccontextmanager
    async def _sent(
        self, client: ApiClient, url: str, request: HttpRequest
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Any answer, with the credentials of this client."""
        method = request.method
        headers = CIMultiDict({"Accept": "application/json", "Content-Type": request.content_type})
        headers.extend(request.impersonation.headers() if request.impersonation is not None else ())
        self._calls[client] += 1
        try:
            await client.update_params_for_auth(headers, [], ["BearerToken"], url, method, request.body)
            answer = await client.rest_client.request(  # type: ignore[no-untyped-call]
                method,
                client.configuration.host + url,
                headers=headers,
                body=request.body,
                _request_timeout=request.timeout,
            )
            async with answer.response as response:
                yield response
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ConfigException) as error:
            sent = not isinstance(error, _NOT_SENT)
            raise ApiUnreachableError(
                f"{method} {request.path}: {str(error) or repr(error)}", sent=sent
            ) from error
        finally:
            self._calls[client] -= 1
            await self._close_if_replaced(client)

    async def _renewed(self, refused: ApiClient) -> bool:
        """Whether there are other credentials now than those that were refused."""
        if self.renew is None:
            return False
        failed = self._renewals_failed
        async with self._renewing:
            if self.client is refused:
                if self._renewals_failed != failed:
                    return False  # while this call waited: not each of many tries, one after another
                try:
                    self.client = await self.renew()
                except KubeCredentialsError as error:
                    self._renewals_failed += 1
                    log.warning("credentials-not-renewed", error=str(error))
                    return False
        await self._close_if_replaced(refused)
        return True

    async def _close_if_replaced(self, client: ApiClient) -> None:
        if client is not self.client and not self._calls[client]:
            del self._calls[client]
            await client.close()  # type: ignore[no-untyped-call]


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines of any length; half a line at a broken end is dropped."""
    rest = b""
    async for piece in response.content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line:
                yield line


def parsed(text: bytes, source: str) -> Object:
    """The JSON object that a text is; `source` names the call for the error.

    Raises:
        UnreachableError: it is none, so something between us and the server answered in its place.
    """
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ApiUnreachableError(f"{source}: the answer is no JSON object")
    return answer


def _error(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    after = response.headers.get("Retry-After", "")
    after_s = float(after) if after.isdecimal() else 0.0
    try:
        return refusal(response.status, json.loads(body), after_s)
    except (ValueError, AttributeError):
        return ApiError(response.status, "", body[:200].decode(errors="replace"), after_s)
