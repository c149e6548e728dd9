"""A fake API server on loopback, with faults to order: for tests of what talks to Kubernetes.

    async with FakeServer() as server:
        server.add(PODS, {"metadata": {"namespace": "ns", "name": "p"}, "spec": {…}})
        async with server.api() as api: …

It has no controllers and no kubelets: a test plays them with `add`, `change` and `remove`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from starburst.kube.api import Api
from starburst.kube.resources import Resource
from tests.kube_unit.store import Address, Change, Object, RefusedError, Store, event_of

T = TypeVar("T")


@dataclass(slots=True)
class Fault:
    """What goes wrong with the next `times` calls whose "METHOD path" has this text in it."""

    of: str
    #: Only calls that say this.
    says: str = ""
    #: Answer this instead (with `reason` and `message`), or if 0 …
    status: int = 0
    reason: str = ""
    message: str = "as ordered"
    #: Of the object that is not there (404); a proxy, or a server that does not serve the kind, has none.
    name: str = ""
    #: Of an invalid object, "field: message" each.
    causes: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    #: … never answer, or, if not silent, break the connection.
    silent: bool = False
    #: The write happens all the same.
    done: bool = False
    #: Answer with this text, whatever it is.
    text: str | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as it came in."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(eq=False, slots=True)
class Watcher:
    """An open watch. None in its queue ends it; bytes are sent as they are, then the connection breaks."""

    within: Address
    selector: str
    queue: asyncio.Queue[Object | bytes | None]


class FakeServer:
    """Objects, watches and faults behind HTTP. Every event a watch gets is in the order of the writes."""

    def __init__(self, minor: str = "20", port: int = 0) -> None:
        """`minor`: of the version, as /version tells it; `port`: 0 for any that is free."""
        self._port = port
        self.minor = minor
        self.store = Store(int(re.findall("[0-9]+", minor)[0]))
        #: Bearer tokens that are let in; None lets everybody in.
        self.tokens: set[str] | None = None
        #: What access reviews say of `spec.resourceAttributes`.
        self.allows: Callable[[Object], bool] = lambda _: True
        #: Plurals of the custom resources that it serves, by API version.
        self.custom: dict[str, list[str]] = {}
        #: By (namespace, pod).
        self.logs: dict[tuple[str, str], bytes] = {}
        self.asked: list[Asked] = []
        self.watchers: set[Watcher] = set()
        self.url = ""
        self._faults: list[Fault] = []
        #: What is left of a paged list, and its version, by continue token.
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._over = asyncio.Event()

    async def __aenter__(self) -> FakeServer:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        self.end_watches()
        await self._runner.cleanup()

    # Who talks to it.

    def api(self, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> Api:
        """A client of it, as anybody."""
        return Api(ApiClient(Configuration(host=self.url)), sleep=sleep)

    def kubeconfig(self, path: Path, user: Object | None = None, cluster: Object | None = None) -> Path:
        """A kubeconfig (JSON is YAML) of it."""
        path.write_text(json.dumps(kubeconfig_of(self.url, user, cluster)))
        return path

    # What a controller, a kubelet or another client does.

    def add(self, resource: Resource, item: Object) -> Object:
        """Make an object; its namespace and name are its metadata's, its status stays."""
        return self._told(lambda: self.store.create(self._address(resource, item), item))

    def change(self, resource: Resource, namespace: str, name: str, patch: Object) -> Object:
        """A merge patch of all of it, status too, unlike what clients may do."""
        path = resource.path(namespace, name)
        body = {key: value for key, value in patch.items() if key != "status"}
        if body:
            self._told(lambda: self.store.patch(Address.of(path), body))
        if "status" in patch:
            self._told(lambda: self.store.patch(Address.of(f"{path}/status"), {"status": patch["status"]}))
        return self.get(resource, namespace, name)

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """It is gone at once."""
        self._told(lambda: self.store.remove(Address.of(resource.path(namespace, name))))

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Raises RefusedError: there is none."""
        return self.store.get(Address.of(resource.path(namespace, name)))

    def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        """Of one namespace or all."""
        return self.store.all(Address.of(resource.path(namespace)))

    @staticmethod
    def _address(resource: Resource, item: Object) -> Address:
        return Address.of(resource.path(item["metadata"].get("namespace", "")))

    # What goes wrong.

    def fail(self, of: str, **fault: Any) -> None:
        """See `Fault`: fail("GET /api/v1/pods", status=500)."""
        self._faults.append(Fault(of, **fault))

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()

    def forget(self) -> None:
        """Compact: open watches go on, but who comes back with an old version is told 410."""
        self.store.compact()
        self._pages.clear()

    def expire_watches(self) -> None:
        """Open watches are told 410."""
        self.tell({"type": "ERROR", "object": _status(410, "Expired", "too old resource version")})
        self.end_watches()

    def end_watches(self) -> None:
        """Open watches end, as when their time has run out."""
        for watcher in self.watchers:
            watcher.queue.put_nowait(None)

    def cut_watches(self, rest: bytes = b"") -> None:
        """Connections of open watches break after these bytes."""
        for watcher in self.watchers:
            watcher.queue.put_nowait(rest)

    def mute_watches(self, resource: Resource) -> None:
        """Open watches hear nothing more, though their connections stay."""
        for watcher in [each for each in self.watchers if each.within.plural == resource.plural]:
            self.watchers.discard(watcher)

    def tell(self, event: Object) -> None:
        """Any event, true or not, to every open watch."""
        for watcher in self.watchers:
            watcher.queue.put_nowait(event)

    def bookmark(self) -> None:
        """Tell every open watch how far it is."""
        self.tell({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.store.version)}}})

    # HTTP.

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        asked = Asked(request.method, request.path, dict(request.query), body, dict(request.headers))
        self.asked.append(asked)
        try:
            fault = self._fault(asked)
            if fault is not None and not fault.done:
                return await self._failed(request, fault)
            if self.tokens is not None and asked.headers.get("Authorization", "")[7:] not in self.tokens:
                raise RefusedError(401, "Unauthorized", "Unauthorized")
            if asked.query.get("watch") == "true":
                return await self._watched(request, asked)
            answer = self._told(lambda: self._called(asked))
            if fault is not None:
                return await self._failed(request, fault)
        except RefusedError as no:
            body = {**_status(no.status, no.reason, no.message), "details": {"name": no.name}}
            return web.json_response(body, status=no.status)
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="text/plain")
        return web.json_response(answer, status=201 if asked.method == "POST" else 200)

    def _fault(self, asked: Asked) -> Fault | None:
        watching = "WATCH" if asked.query.get("watch") == "true" else asked.method
        for fault in self._faults:
            if (
                fault.times
                and fault.of in f"{watching} {asked.path}"
                and fault.says in json.dumps(asked.body)
            ):
                fault.times -= 1
                return fault
        return None

    async def _failed(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        if fault.text is not None:
            return web.Response(text=fault.text)
        if fault.status:
            body = _status(fault.status, fault.reason, fault.message)
            causes = [cause.partition(": ") for cause in fault.causes]
            body["details"] = {
                "name": fault.name,
                "causes": [{"field": field, "message": why} for field, _, why in causes],
            }
            return web.json_response(body, status=fault.status, headers=fault.headers)
        if fault.silent:
            await self._over.wait()
        _cut(request)
        return web.Response()

    def _called(self, asked: Asked) -> Object | bytes:
        if asked.path == "/version":
            return {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}"}
        if asked.path == "/apis":
            versions = [{"groupVersion": version} for version in self.custom]
            return {"groups": [{"name": each["groupVersion"], "versions": [each]} for each in versions]}
        if asked.path.removeprefix("/apis/") in self.custom:
            plurals = self.custom[asked.path.removeprefix("/apis/")]
            return {"resources": [{"name": each} for each in plurals]}
        if asked.path == "/api/v1":
            return {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True}]}
        address = Address.of(asked.path)
        if asked.headers.get("Content-Type", "").startswith("application/apply-patch"):
            return self.store.create(replace(address, name=""), asked.body)
        if asked.method == "GET":
            if address.sub == "log":
                text = self.logs.get((address.namespace, address.name), b"")
                return _timed(text) if "timestamps" in asked.query else text
            return self.store.get(address) if address.name else self._listed(address, asked.query)
        if asked.method == "POST" and asked.query.get("dryRun"):
            return {**asked.body}
        if asked.method == "POST":
            return self._posted(address, asked.body)
        if asked.method == "PUT":
            return self.store.update(address, asked.body)
        if asked.method == "PATCH":
            return self.store.patch(address, asked.body)
        return self.store.delete(address, asked.body or {})

    def _posted(self, address: Address, body: Object) -> Object:
        if address.sub == "binding":
            self.store.bind(address, body)
            return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
        if address.plural in ("selfsubjectaccessreviews", "subjectaccessreviews"):
            return {**body, "status": {"allowed": self.allows(body["spec"].get("resourceAttributes", {}))}}
        if address.plural in ("pods", "jobs"):
            body = {key: value for key, value in body.items() if key != "status"}
        return self.store.create(address, body)

    def _listed(self, address: Address, query: dict[str, str]) -> Object:
        token = query.get("continue", "")
        if token and token not in self._pages:
            raise RefusedError(410, "Expired", "The provided continue parameter is too old")
        found = self.store.all(address, query.get("labelSelector", ""))
        fresh = (self.store.version, _with_fields(found, query.get("fieldSelector", "")))
        version, items = self._pages.pop(token) if token else fresh
        limit = int(query.get("limit") or len(items) or 1)
        metadata = {"resourceVersion": str(version)}
        if len(items) > limit:
            metadata["continue"] = f"token-{len(self.asked)}"
            self._pages[metadata["continue"]] = (version, items[limit:])
        return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[:limit]}

    async def _watched(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        since = int(asked.query.get("resourceVersion") or self.store.version)
        watcher = Watcher(Address.of(asked.path), asked.query.get("labelSelector", ""), asyncio.Queue())
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if since < self.store.compacted:
            watcher.queue.put_nowait({"type": "ERROR", "object": _status(410, "Expired", "too old")})
            watcher.queue.put_nowait(None)
        for change in self.store.history:
            if change.version > since:
                _enqueue(watcher, change)
        self.watchers.add(watcher)
        try:
            while (event := await watcher.queue.get()) is not None:
                if isinstance(event, bytes):
                    await response.write(event)
                    _cut(request)
                    break
                await response.write(json.dumps(event).encode() + b"\n")
        except ConnectionError:
            pass
        finally:
            self.watchers.discard(watcher)
        return response

    def _told(self, write: Callable[[], T]) -> T:
        """Do it, and tell every open watch."""
        before = len(self.store.history)
        answer = write()
        for change in self.store.history[before:]:
            for watcher in self.watchers:
                _enqueue(watcher, change)
        return answer


def kubeconfig_of(url: str, user: Object | None = None, cluster: Object | None = None) -> Object:
    """A kubeconfig of a server."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
        "clusters": [{"name": "fake", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}],
    }


def _enqueue(watcher: Watcher, change: Change) -> None:
    event = event_of(change, watcher.within, watcher.selector)
    if event is not None:
        watcher.queue.put_nowait(event)


def _with_fields(items: list[Object], selector: str) -> list[Object]:
    """Those whose field has a value, as "metadata.name=x"; all without a selector."""
    path, _, value = selector.partition("=")

    def field(item: Any) -> Any:
        for part in path.split("."):
            item = (item or {}).get(part)
        return item

    return [item for item in items if not selector or field(item) == value]


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


def _status(code: int, reason: str, message: str) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}


def _timed(text: bytes) -> bytes:
    """A log as it is served with times: each line a minute after the one before."""
    lines = text.splitlines(keepends=True)
    return b"".join(
        f"2026-03-02T{9 + n // 60 % 15:02}:{n % 60:02}:00.25Z ".encode() + line
        for n, line in enumerate(lines)
    )
