"""As much of SkyPilot's package as the adapter imports, for tests that need none of it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest


@dataclass(slots=True)
class Served:
    """A server that answers requests when it is told to."""

    #: Names of each refresh, and its request's id.
    refreshes: list[tuple[str, ...]] = field(default_factory=list)
    answers: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    at_once: int = 0
    most_at_once: int = 0

    def status(self, names: list[str] | None, **_options: Any) -> str:
        """Take a request for a listing."""
        self.refreshes.append(tuple(names or ()))
        return f"request-{len(self.refreshes) - 1}"

    def launch(self, _task: Any, cluster_name: str) -> str:
        """As the SDK's, which says so."""
        sdk: Any = sys.modules["sky.client.sdk"]
        sdk.click.secho("Running on cluster: ", fg="cyan", nl=False)
        sdk.click.secho(cluster_name)
        return "launch-0"

    async def get(self, request: str) -> Any:
        """The result of a request, as several may wait for."""
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await asyncio.sleep(0.02)
            return await asyncio.shield(self.of(request))
        finally:
            self.at_once -= 1

    def of(self, request: str) -> asyncio.Future[Any]:
        """What a request is to be answered with."""
        return self.answers.setdefault(request, asyncio.get_running_loop().create_future())


def install(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Have `sky` be this until the test ends."""
    served = Served()
    modules = {name: ModuleType(name) for name in ("sky", "sky.catalog", "sky.client")}
    sky: Any = modules["sky"]
    sky.StatusRefreshMode = SimpleNamespace(FORCE="force", NONE="none")
    sky.Task = SimpleNamespace(from_yaml_config=lambda config: config)
    sky.catalog, sky.client = modules["sky.catalog"], modules["sky.client"]
    sdk: Any = ModuleType("sky.client.sdk")
    sdk.click, sdk.status, sdk.launch = click, served.status, served.launch
    sdk_async: Any = ModuleType("sky.client.sdk_async")
    sdk_async.get = served.get
    sky.client.sdk, sky.client.sdk_async = sdk, sdk_async
    for name, module in {**modules, "sky.client.sdk": sdk, "sky.client.sdk_async": sdk_async}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return served
