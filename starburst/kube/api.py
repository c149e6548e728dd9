"""Calls to a Kubernetes API server, in plain dicts: a time limit each, a bounded retry, errors with a mend.

Only the transport and the credentials are the client library's. Its models are not used: they drop the fields
they do not know, and a user's manifest must come through whole.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException
from multidict import CIMultiDict

from starburst.kube import credentials, errors

log = structlog.get_logger()

ApiError = errors.ApiError
CredentialsError = errors.CredentialsError
UnreachableError = errors.UnreachableError

#: Wall seconds.
CALL_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 5.0
#: A watch that is silent this long is taken for dead; servers send a bookmark about every minute.
SILENCE_S = 150.0
TRIES = 4
FIRST_PAUSE_S = 0.2
PAGE = 500

Object = dict[str, Any]
Query = Mapping[str, str]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object as the API addresses it."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Of one object, of one namespace's or, without a namespace, of all of them."""
        root = "api" if "/" not in self.api_version else "apis"
        parts = [root, self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [self.plural, *(quote(part, safe="") for part in (name, sub) if part)]
        return "/" + "/".join(parts)


NODES = Resource("v1", "nodes", namespaced=False)
NAMESPACES = Resource("v1", "namespaces", namespaced=False)
PODS = Resource("v1", "pods")
EVENTS = Resource("v1", "events")
JOBS = Resource("batch/v1", "jobs")
LEASES = Resource("coordination.k8s.io/v1", "leases")


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom the server is to take us for (impersonation); we need the right `impersonate` for that."""

    user: str
    groups: tuple[str, ...] = ()

    def headers(self) -> list[tuple[str, str]]:
        """Of a call in this one's name."""
        return [("Impersonate-User", self.user), *(("Impersonate-Group", group) for group in self.groups)]


#: No connection was made.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class Api:
    """One API server. Made by `connect`; to be closed."""

    def __init__(
        self,
        client: ApiClient,
        *,
        renew: Callable[[], Awaitable[ApiClient]] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`renew` makes a client with new credentials, for when the server takes the old ones no more."""
        self._client = client
        self._renew = renew
        self._sleep = sleep
        self._renewing = asyncio.Lock()
        #: Calls under way of each client; one that was replaced is closed after its last.
        self._calls: Counter[ApiClient] = Counter()

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> Api:
        """With a kubeconfig: that file, else KUBECONFIG or ~/.kube/config, else the pod's own account.

        Raises:
            CredentialsError: there is none, or it cannot be used.
        """

        async def client() -> ApiClient:
            configuration = await credentials.load(kubeconfig, context)
            try:
                return ApiClient(configuration)
            except OSError as error:
                raise CredentialsError(f"{configuration.host}: its certificates: {error}") from None

        return cls(await client(), renew=client)

    @property
    def host(self) -> str:
        """The server's address."""
        return str(self._client.configuration.host)

    async def close(self) -> None:
        """Drop every connection."""
        for client in {self._client, *self._calls}:
            await client.close()  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # One object.

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object. Raises ApiError, UnreachableError."""
        return await self.call("GET", resource.path(namespace, name))

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object, or None if there is none of that name. Raises as `get`."""
        try:
            return await self.get(resource, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: Object,
        sub: str = "",
        acting: Impersonation | None = None,
    ) -> Object:
        """A new object; `sub` with the name in the body's metadata for bindings and the like."""
        name = body["metadata"]["name"] if sub else ""
        return await self.call("POST", resource.path(namespace, name, sub), body=body, acting=acting)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Any, *, sub: str = "", kind: str = MERGE
    ) -> Object:
        """Change an object; a merge patch unless `kind` says otherwise."""
        return await self.call("PATCH", resource.path(namespace, name, sub), body=body, content_type=kind)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_s: int | None = None,
        propagation: str = "",
    ) -> bool:
        """Begin to delete an object, this very one if `uid` is given; False if it was not there.

        aiohttp repeats a deletion once when the connection breaks; with a `uid` no other object can suffer.
        """
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if propagation:
            body["propagationPolicy"] = propagation
        try:
            await self.call("DELETE", resource.path(namespace, name), body=body)
        except ApiError as error:
            if error.status == 404 or (uid and error.status == 409):
                return False
            raise
        return True

    # Many objects.

    async def pages(
        self, resource: Resource, namespace: str = "", selector: str = ""
    ) -> AsyncIterator[tuple[list[Object], str]]:
        """All objects of now, PAGE at a time, each page with the list's resource version.

        Raises:
            ApiError: also 410, when the list took too long and has to be begun anew.
            UnreachableError: no answer, or one that is no list.
        """
        query = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = selector
        while True:
            answer = await self.call("GET", resource.path(namespace), query=query)
            metadata = answer.get("metadata") or {}
            if not metadata.get("resourceVersion"):
                raise UnreachableError(f"GET {resource.path(namespace)}: the answer is no list")
            yield answer.get("items") or [], metadata["resourceVersion"]
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def list(self, resource: Resource, namespace: str = "", selector: str = "") -> list[Object]:
        """All objects of now, in one list."""
        return [item async for items, _ in self.pages(resource, namespace, selector) for item in items]

    async def watch(
        self, resource: Resource, version: str, *, namespace: str = "", selector: str = "", last_s: int = 300
    ) -> AsyncGenerator[Object, None]:
        """Events after a resource version, as the server sends them, until it ends the stream.

        Raises:
            ApiError: the server refused; 410 means that `version` is too old.
            UnreachableError: the stream broke, or was silent for too long.
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(last_s),
        }
        if selector:
            query["labelSelector"] = selector
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S)
        async with self._response("GET", resource.path(namespace), query, timeout=timeout) as response:
            async for line in _lines(response):
                event = _object(line, f"WATCH {resource.path(namespace)}")
                if event["type"] == "ERROR":
                    raise errors.refusal(event["object"].get("code", 500), event["object"])
                yield event

    async def log(
        self, namespace: str, pod: str, *, follow: bool = False, query: Query | None = None
    ) -> AsyncIterator[bytes]:
        """What a container writes, in pieces; `follow` goes on until it ends."""
        read_s = None if follow else CALL_TIMEOUT_S
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=read_s)
        asked = {"follow": "true" if follow else "false", **(query or {})}
        async with self._response(
            "GET", PODS.path(namespace, pod, "log"), asked, timeout=timeout
        ) as response:
            async for piece in response.content.iter_any():
                yield piece

    # Any call.

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_s: float = CALL_TIMEOUT_S,
        acting: Impersonation | None = None,
    ) -> Object:
        """One call. Reads are repeated on any trouble; writes only when nothing can have come of them.

        Raises:
            ApiError: the server said no.
            UnreachableError: it did not answer; a write may have happened.
        """
        pause_s = FIRST_PAUSE_S
        for left in reversed(range(TRIES)):
            asked_s = 0.0
            try:
                timeout = aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_TIMEOUT_S)
                async with self._response(
                    method,
                    path,
                    query or {},
                    body=body,
                    content_type=content_type,
                    timeout=timeout,
                    acting=acting,
                ) as response:
                    return _object(await response.read() or b"{}", f"{method} {path}")
            except ApiError as error:
                again = error.status == 429 or (method == "GET" and error.status >= 500)
                if not left or not again:
                    raise
                asked_s = error.retry_after_s
            except UnreachableError as error:
                if not left or (error.sent and method != "GET"):
                    raise
            await self._sleep(max(pause_s, asked_s))
            pause_s *= 3
        raise AssertionError("not reached")

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        body: Any = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout,
        acting: Impersonation | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is no error, closed at the end. Credentials that ran out (401) are renewed once."""
        url = path + (f"?{urlencode(query)}" if query else "")
        for tried in (False, True):
            client = self._client
            headers = CIMultiDict({"Accept": "application/json", "Content-Type": content_type})
            headers.extend(acting.headers() if acting is not None else ())
            async with self._sent(client, method, url, headers, body=body, timeout=timeout) as response:
                if response.status < 400:
                    yield response
                    return
                error = _error(response, await response.read())
            if error.status != 401 or tried or not await self._renewed(client):
                raise error

    @asynccontextmanager
    async def _sent(
        self,
        client: ApiClient,
        method: str,
        url: str,
        headers: CIMultiDict[str],
        *,
        body: Any,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Any answer. Broken connections become UnreachableError, also while the answer is read."""
        self._calls[client] += 1
        try:
            await client.update_params_for_auth(headers, [], ["BearerToken"], url, method, body)
            answer = await client.rest_client.request(  # type: ignore[no-untyped-call]
                method, client.configuration.host + url, headers=headers, body=body, _request_timeout=timeout
            )
            async with answer.response as response:
                yield response
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ConfigException) as error:
            sent = not isinstance(error, _NOT_SENT)
            raise UnreachableError(f"{method} {url.partition('?')[0]}: {error!r}", sent=sent) from error
        finally:
            self._calls[client] -= 1
            await self._close_if_replaced(client)

    async def _renewed(self, refused: ApiClient) -> bool:
        """Whether there are other credentials now than those that were refused."""
        if self._renew is None:
            return False
        async with self._renewing:
            if self._client is refused:
                try:
                    self._client = await self._renew()
                except CredentialsError as error:
                    log.warning("credentials-not-renewed", error=str(error))
                    return False
        await self._close_if_replaced(refused)
        return True

    async def _close_if_replaced(self, client: ApiClient) -> None:
        if client is not self._client and not self._calls[client]:
            del self._calls[client]
            await client.close()  # type: ignore[no-untyped-call]


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines of any length; half a line at a broken end is dropped."""
    rest = b""
    async for piece in response.content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line:
                yield line


def _object(text: bytes, of: str) -> Object:
    """Raises UnreachableError: something between us and the server answered in its place."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise UnreachableError(f"{of}: the answer is no JSON object")
    return answer


def _error(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    after = response.headers.get("Retry-After", "")
    after_s = float(after) if after.isdecimal() else 0.0
    try:
        return errors.refusal(response.status, json.loads(body), after_s)
    except (ValueError, AttributeError):
        return ApiError(response.status, "", body[:200].decode(errors="replace"), after_s)
