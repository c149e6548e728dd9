"""A made-up API server that has one Lease, and lines to it that may be slow or cut."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.resources import Object, Resource

T = TypeVar("T")


def lease(holder: str | None, version: int = 1, duration_s: int = 15) -> Object:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "leaseTransitions": 4}
    return {"metadata": {"name": "chakra", "resourceVersion": str(version)}, "spec": spec}


@dataclass
class Server:
    """One Lease, with versions as the API server has them."""

    stored: Object | None = None
    version: int = 0
    #: Holder after each write.
    holders: list[str] = field(default_factory=list)

    def write(self, body: Object, *, create: bool) -> Object:
        if create and self.stored is not None:
            raise ApiError(409, "AlreadyExists", "it is there")
        if not create and self.stored is None:
            raise ApiError(404, "NotFound", "it is not there", name="lease")
        if self.stored is not None and not create:
            told, known = body["metadata"]["resourceVersion"], self.stored["metadata"]["resourceVersion"]
            if told != known:
                raise ApiError(409, "Conflict", f"{told} is not {known}")
        self.version += 1
        self.stored = copy.deepcopy(body)
        self.stored["metadata"]["resourceVersion"] = str(self.version)
        self.holders.append(body["spec"]["holderIdentity"])
        return copy.deepcopy(self.stored)

    def read(self) -> Object | None:
        return copy.deepcopy(self.stored)


#: Seconds until a call is carried out, and from then until its answer is there; None: it never is.
Delays = tuple["float | None", "float | None"]


class Line:
    """A process's connection to it. What was sent arrives even when its sender no longer waits for it."""

    def __init__(self, server: Server, delays: Callable[[], Delays] = lambda: (0.0, 0.0)) -> None:
        self._server = server
        self._delays = delays

    async def find(self, _resource: Resource, _namespace: str, _name: str) -> Object | None:
        return await self._carried(self._server.read)

    async def create(self, _resource: Resource, _namespace: str, body: Object) -> Object:
        return await self._carried(lambda: self._server.write(body, create=True))

    async def call(self, method: str, _path: str, *, body: Object) -> Object:
        assert method == "PUT"
        return await self._carried(lambda: self._server.write(body, create=False))

    async def _carried(self, act: Callable[[], T]) -> T:
        there_s, back_s = self._delays()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def arrive() -> None:
            try:
                settle = partial(done.set_result, act())
            except ApiError as refused:
                settle = partial(done.set_exception, refused)
            if back_s is not None:
                loop.call_later(back_s, lambda: done.done() or settle())

        if there_s is not None:
            loop.call_later(there_s, arrive)
        if there_s is None or back_s is None:
            await asyncio.sleep(30.0)
            raise ApiUnreachableError("no answer")
        return await done
