"""Calls to a Kubernetes API server, in plain dicts: each has a time limit and a bounded number of retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient

from starburst.kube import credentials
from starburst.kube.errors import ApiError, ApiUnreachableError, KubeCredentialsError, refusal
from starburst.kube.resources import PODS, Object, Resource
from starburst.kube.transport import HttpRequest, Impersonation, Transport, lines, parsed

#: Wall seconds.
CALL_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 5.0
#: A watch that is silent this long is taken for dead; servers send a bookmark about every minute.
SILENCE_S = 150.0
TRIES = 4
FIRST_PAUSE_S = 0.2
#: Objects in one answer of a list.
PAGE = 500

#: Below this path there are questions only, though they are asked by POST.
REVIEWS = "/apis/authorization.k8s.io/"

#: Content types of patches.
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


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
        self._transport = Transport(client, renew)
        self._sleep = sleep
        #: Raises NotLeadingError while nothing may be written.
        self.fence: Callable[[], None] = lambda: None

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
                raise KubeCredentialsError(f"{configuration.host}: its certificates: {error}") from None

        return cls(await client(), renew=client)

    @property
    def host(self) -> str:
        """The server's address."""
        return str(self._transport.client.configuration.host)

    async def close(self) -> None:
        """Drop every connection."""
        await self._transport.close()

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
            if error.absent:
                return None
            raise

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: Object,
        sub: str = "",
        impersonation: Impersonation | None = None,
        *,
        dry_run: bool = False,
    ) -> Object:
        """A new object; `sub` with the name in the body's metadata for bindings and the like.

        With `dry_run` the server only says whether it would take it, and refuses unknown fields (from 1.25).
        """
        name = body["metadata"]["name"] if sub else ""
        query = {"dryRun": "All", "fieldValidation": "Strict"} if dry_run else None
        path = resource.path(namespace, name, sub)
        return await self.call("POST", path, query=query, body=body, impersonation=impersonation)

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
            if error.absent or (uid and error.status == 409):
                return False
            raise
        return True

    # Many objects.

    async def pages(
        self, resource: Resource, namespace: str = "", selector: str = "", *, fields: str = ""
    ) -> AsyncIterator[tuple[list[Object], str]]:
        """All objects of now, PAGE at a time, each page with the list's resource version.

        `selector` is one of labels, `fields` one of fields.

        Raises:
            ApiError: also 410, when the list took too long and has to be begun anew.
            UnreachableError: no answer, or one that is no list.
        """
        query = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = selector
        if fields:
            query["fieldSelector"] = fields
        while True:
            answer = await self.call("GET", resource.path(namespace), query=query)
            metadata = answer.get("metadata") or {}
            if not metadata.get("resourceVersion"):
                raise ApiUnreachableError(f"GET {resource.path(namespace)}: the answer is no list")
            yield answer.get("items") or [], metadata["resourceVersion"]
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def list(
        self, resource: Resource, namespace: str = "", selector: str = "", *, fields: str = ""
    ) -> list[Object]:
        """All objects of now, in one list; see `pages`."""
        pages = self.pages(resource, namespace, selector, fields=fields)
        return [item async for items, _ in pages for item in items]

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
        request = HttpRequest("GET", resource.path(namespace), timeout, query)
        async with self._transport.response(request) as response:
            async for line in lines(response):
                source = f"WATCH {resource.path(namespace)}"
                event = parsed(line, source)
                item = event.get("object")
                if event.get("type") == "ERROR" and isinstance(item, dict):
                    raise refusal(item.get("code", 500), item)
                if not (event.get("type") and isinstance(item, dict) and _version(item).isdecimal()):
                    raise ApiUnreachableError(f"{source}: the answer is no event")
                yield event

    async def log(
        self, namespace: str, pod: str, *, follow: bool = False, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[bytes]:
        """What a container writes, in pieces; `follow` goes on until it ends."""
        read_s = None if follow else CALL_TIMEOUT_S
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=read_s)
        asked = {"follow": "true" if follow else "false", **(query or {})}
        request = HttpRequest("GET", PODS.path(namespace, pod, "log"), timeout, asked)
        async with self._transport.response(request) as response:
            async for piece in response.content.iter_any():
                yield piece

    # Any call.

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_s: float = CALL_TIMEOUT_S,
        impersonation: Impersonation | None = None,
    ) -> Object:
        """One call. Reads are repeated on any trouble; writes only when nothing can have come of them.

        Raises:
            ApiError: the server said no.
            UnreachableError: it did not answer; a write may have happened.
        """
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_TIMEOUT_S)
        request = HttpRequest(method, path, timeout, query, body, content_type, impersonation)
        pause_s = FIRST_PAUSE_S
        for left in reversed(range(TRIES)):
            asked_s = 0.0
            try:
                return await self._once(request)
            except ApiError as error:
                again = error.status == 429 or (method == "GET" and error.status >= 500)
                if not left or not again:
                    raise
                asked_s = error.retry_after_s
            except ApiUnreachableError as error:
                if not left or (error.sent and method != "GET"):
                    raise
            await self._sleep(max(pause_s, asked_s))
            pause_s *= 3
        raise AssertionError("not reached")

    async def _once(self, request: HttpRequest) -> Object:
        """One try of a call, with its answer."""
        if request.method != "GET" and not request.path.startswith(REVIEWS):
            self.fence()
        async with self._transport.response(request) as response:
            return parsed(await response.read() or b"{}", f"{request.method} {request.path}")


def _version(item: Object) -> str:
    """The resource version of an object; "" if it has none."""
    metadata = item.get("metadata")
    return str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""
