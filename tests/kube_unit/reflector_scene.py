"""A fake API server, a reflector of its pods, and what that tells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starburst.kube.api import Api
from starburst.kube.reflector import Reflector
from starburst.kube.resources import PODS, Resource
from tests.kube_unit.samples import Sleeps, Told, a_pod, reflecting, until
from tests.kube_unit.server import FakeServer


@dataclass
class Scene:
    """A server, a reflector of its pods, and what that tells."""

    server: FakeServer
    api: Api
    reflector: Reflector[Any]
    told: Told
    sleeps: Sleeps

    async def watching(self) -> None:
        """Until the watch is open and everything is told."""
        await until(lambda: self.server.watchers and self.caught_up())

    def caught_up(self) -> bool:
        """Whether it knows of every write."""
        return self.reflector._newest == self.server.store.version

    def set_phase(self, name: str, phase: str) -> None:
        """As a kubelet does."""
        self.server.change(PODS, "ns", name, {"status": {"phase": phase}})

    def disconnect(self) -> None:
        """No watch comes through until the server heals."""
        self.server.fail("WATCH", times=10**9)
        self.server.cut_watches()

    def asked(self, what: str) -> list[str]:
        """Resource versions of watches, or queries of lists."""
        return [
            asked.query.get("resourceVersion", "")
            for asked in self.server.asked
            if (asked.query.get("watch") == "true") == (what == "watch")
        ]


@asynccontextmanager
async def scene(
    *names: str, on: FakeServer | None = None, resource: Resource = PODS, **more: Any
) -> AsyncIterator[Scene]:
    """Pods of these names, listed and watched."""
    async with on or FakeServer() as server:
        for name in names:
            server.add(PODS, a_pod(name))
        told, sleeps = Told(), Sleeps()
        async with (
            server.api(sleep=sleeps) as api,
            reflecting(api, resource, told, sleep=sleeps, **more) as reflector,
        ):
            yield Scene(server, api, reflector, told, sleeps)
