"""An API server in memory, with the troubles of a real one, for the scheduler's shell in virtual time.

Watches lag and break; bindings are applied and not answered, answered late, refused, or land long after their
caller gave up. The server itself never lies: a pod is bound once.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import OVER, read_node
from starburst.kube.resources import (
    CLAIMS,
    CSI_NODES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    Object,
    Resource,
)
from translator.podspec import pod_requests


class Server:
    """What is so."""

    def __init__(self) -> None:
        storage = (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, STORAGE_CAPACITIES)
        kinds = ("nodes", "pods", "jobs", "events", *(each.plural for each in storage))
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in kinds}
        self.history: list[tuple[str, str, Object]] = []
        self.news = asyncio.Event()
        #: By pod's name.
        self.bound: Counter[str] = Counter()
        #: What must never happen.
        self.problems: list[str] = []

    @property
    def version(self) -> str:
        return str(len(self.history))

    def put(self, kind: str, item: Object) -> None:
        """Make or change an object."""
        metadata = item["metadata"]
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        how = "MODIFIED" if key in self.objects[kind] else "ADDED"
        self.objects[kind][key] = item
        self._tell(kind, how, item)

    def remove(self, kind: str, key: str) -> None:
        """Delete an object."""
        self._tell(kind, "DELETED", self.objects[kind].pop(key))

    def _tell(self, kind: str, how: str, item: Object) -> None:
        item["metadata"]["resourceVersion"] = str(len(self.history) + 1)
        self.history.append((kind, how, copy.deepcopy(item)))
        self.news.set()
        self.news = asyncio.Event()

    def bind(self, key: str, body: Object) -> None:
        """As the subresource does it; and what a kubelet would say to it."""
        pod = self.objects["pods"].get(key)
        if pod is None:
            raise ApiError(404, "NotFound", key, name=key)
        if pod["spec"].get("nodeName"):
            raise ApiError(409, "Conflict", f"{key} is already assigned")
        node = body["target"]["name"]
        pod = copy.deepcopy(pod)
        pod["spec"]["nodeName"] = node
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations") or {})
        self.put("pods", pod)
        self.bound[pod["metadata"]["name"]] += 1
        self._admit(node)

    def _admit(self, name: str) -> None:
        node = self.objects["nodes"].get(f"/{name}")
        if node is None:
            return
        used: Counter[str] = Counter()
        for pod in self.objects["pods"].values():
            if pod["spec"].get("nodeName") == name and pod["status"].get("phase") not in OVER:
                used.update(pod_requests(pod["spec"]))
        for resource, there in read_node(node).allocatable.items():
            if used[resource] > there:
                self.problems.append(f"OutOf{resource} on {name}: {used[resource]} of {there}")


class Client:
    """One process's connection; what it sends when it is dead does not arrive."""

    def __init__(self, server: Server, draw: random.Random, trouble: float) -> None:
        self.server = server
        self.draw = draw
        #: Probability of each kind of trouble, at each call.
        self.trouble = trouble
        self.dead = False
        self.calls: Counter[str] = Counter()
        self._late: set[asyncio.Task[None]] = set()

    def kill(self) -> None:
        """kill -9"""
        self.dead = True
        for task in self._late:
            task.cancel()

    def _unlucky(self) -> bool:
        return self.draw.random() < self.trouble

    async def _travel(self) -> None:
        await asyncio.sleep(self.draw.uniform(0.001, 0.05))
        if self.dead:
            raise ApiUnreachableError("dead")

    async def pages(self, resource: Resource, namespace: str = "", selector: str = "") -> AsyncIterator[Any]:
        await self._travel()
        await asyncio.sleep(self.draw.choice([0.0, 0.1, 3.0]))
        if self._unlucky():
            raise ApiUnreachableError("list")
        found = copy.deepcopy(list(self.server.objects[resource.plural].values()))
        yield found, self.server.version

    async def watch(self, resource: Resource, version: str, **_: Any) -> AsyncIterator[Object]:
        position = int(version)
        while not self.dead:
            await asyncio.sleep(self.draw.choice([0.0, 0.01, 0.3, 2.0]))
            news = self.server.news
            if position == len(self.server.history):
                await news.wait()
            while position < len(self.server.history):
                kind, how, item = self.server.history[position]
                position += 1
                if kind == resource.plural:
                    yield {"type": how, "object": copy.deepcopy(item)}
                    if self._unlucky():
                        raise (
                            ApiError(410, "Expired", "") if self._unlucky() else ApiUnreachableError("watch")
                        )

    async def call(self, method: str, path: str, *, body: Object, timeout_s: float = 5.0, **_: Any) -> Object:
        assert method == "POST"
        assert path.endswith("/binding")
        self.calls["bind"] += 1
        await self._travel()
        key = "/".join(body["metadata"][part] for part in ("namespace", "name"))
        if self._unlucky():
            raise ApiError(self.draw.choice([403, 422]), "Refused", "")
        if self._unlucky():
            raise ApiUnreachableError("it did not arrive", sent=self._unlucky())
        if self._unlucky():  # it lands although nobody waits for it any more
            self._late.add(asyncio.ensure_future(self._land_late(key, body)))
            await asyncio.sleep(timeout_s)
            raise ApiUnreachableError("timeout")
        self.server.bind(key, body)
        if self._unlucky():
            raise ApiError(504, "Timeout", "") if self._unlucky() else ApiUnreachableError("no answer")
        await self._travel()
        return {}

    async def _land_late(self, key: str, body: Object) -> None:
        await asyncio.sleep(self.draw.uniform(0, 12))
        with suppress(ApiError):
            self.server.bind(key, body)

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        await self._travel()
        if self._unlucky():
            raise ApiUnreachableError("find")
        return copy.deepcopy(self.server.objects[resource.plural].get(f"{namespace}/{name}"))

    async def create(self, resource: Resource, namespace: str, body: Object, sub: str = "") -> Object:
        self.calls[f"create {resource.plural}"] += 1
        await self._travel()
        if self._unlucky():
            raise ApiUnreachableError("create")
        if f"{namespace}/{body['metadata']['name']}" in self.server.objects[resource.plural]:
            raise ApiError(409, "AlreadyExists", "")
        self.server.put(resource.plural, copy.deepcopy(body))
        return body

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Any, *, sub: str = "", kind: str = ""
    ) -> Object:
        self.calls[f"patch {resource.plural}"] += 1
        await self._travel()
        item = copy.deepcopy(self.server.objects[resource.plural].get(f"{namespace}/{name}"))
        if item is None:
            raise ApiError(404, "NotFound", name, name=name)
        for field, value in body.items():
            item[field] = {**item.get(field, {}), **value} if isinstance(value, dict) else value
        self.server.put(resource.plural, item)
        return item

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str = "", **_: Any) -> bool:
        await self._travel()
        if self._unlucky():
            raise ApiUnreachableError("delete")
        key = f"{namespace}/{name}"
        if key not in self.server.objects[resource.plural]:
            return False
        self.server.remove(resource.plural, key)
        return True
