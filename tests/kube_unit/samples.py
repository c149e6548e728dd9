"""Objects of a cluster, as small as a test needs them, and what watches them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starburst.kube.api import Api
from starburst.kube.errors import ApiError
from starburst.kube.reflector import Reflector
from starburst.kube.resources import Resource
from tests.kube_unit.store import Object, merged


def a_pod(name: str = "p", namespace: str = "ns", **more: Any) -> Object:
    """A pod of one container, with `more` merged in."""
    pod = {"metadata": {"namespace": namespace, "name": name}, "spec": {"containers": [{"name": "main"}]}}
    found: Object = merged(pod, more)
    return found


def container(requests: Object | None = None, limits: Object | None = None, **more: Any) -> Object:
    """One of a pod's containers."""
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


class Told:
    """A handler that keeps what it is told: ("+", new), ("-", old), ("~", old, new) and "synced"."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def changed(self, old: Any, new: Any) -> None:
        """See `Handler`."""
        self.all.append(("+", new) if old is None else ("-", old) if new is None else ("~", old, new))

    def synced(self) -> None:
        """See `Handler`."""
        self.all.append("synced")

    def refused(self, error: ApiError) -> None:
        """See `Handler`."""
        self.all.append(f"refused: {error.status}")

    def take(self) -> list[Any]:
        """What came since the last look."""
        taken, self.all = self.all, []
        return taken


class Sleeps:
    """Virtual sleep: how long was asked for."""

    def __init__(self) -> None:
        self.all: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Does not wait."""
        self.all.append(seconds)
        await asyncio.sleep(0)


def phase_of(item: Object) -> tuple[str, str]:
    """A small value of a pod."""
    return item["metadata"]["name"], item["status"]["phase"]


@asynccontextmanager
async def reflecting(
    api: Api,
    resource: Resource,
    told: Told,
    read: Callable[[Object], Any] = phase_of,
    *,
    selector: str = "",
    sleep: Any = None,
) -> AsyncIterator[Reflector[Any]]:
    """A reflector that runs until the end of the block."""
    reflector: Reflector[Any] = Reflector(
        api, resource, read, told, selector=selector, sleep=sleep or Sleeps(), draw=random.Random(1)
    )
    task = asyncio.ensure_future(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], Any]) -> None:
    """Wait for a condition; 20 s are more than anything here takes."""

    async def wait() -> None:
        while not true():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), 20)
