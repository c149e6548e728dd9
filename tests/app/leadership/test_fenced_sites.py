"""A leader that was stopped, and wakes up after another one leads, changes nothing at any site."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from starburst.app.config.home import Home
from starburst.app.config.sites import KubernetesConfig, SkyConfig
from starburst.app.wiring import kube_client, sky
from starburst.clouds.sky.access import cloud_api, sdk
from starburst.clouds.sky.access.ports import Access, InstanceRef, SkyUnreachableError
from starburst.clouds.sky.context import SkyClock, SkyContext
from starburst.domain.clock import Pace
from starburst.kube.api import Api
from starburst.kube.errors import NotLeadingError
from starburst.kube.resources import PODS
from tests.app.leadership.world import Process, World, world
from tests.kube_unit.samples import a_pod
from tests.kube_unit.server import FakeServer


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, Process]]:
    """The leader, whose epoch is 1, and another process."""
    with world(1, monkeypatch) as made:
        old = Process(made, "old")
        made.go_on(1)
        Process(made, "new")
        made.go_on(10)
        assert old.election.certain()
        yield made, old


def sleep_through_a_takeover(made: World, old: Process) -> None:
    """The old leader is stopped for minutes; another one leads, with epoch 2."""
    old.due = made.now + 300
    made.go_on(made.now + 60)
    assert made.taken[-1][1] == "new"
    assert made.row is not None
    assert (made.row.epoch, old.election.epoch) == (2, 1)


def test_kubernetes_hears_nothing_but_reads_of_an_old_leader(
    leaders: tuple[World, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, old = leaders

    async def main() -> None:
        async with FakeServer() as server, server.api() as client:

            async def connect(*_: object) -> Api:
                return client

            monkeypatch.setattr(Api, "connect", connect)
            api = await kube_client.connect(KubernetesConfig(kind="kubernetes"), old.election.fence)
            await api.create(PODS, "ns", a_pod())
            sleep_through_a_takeover(made, old)
            server.asked.clear()
            writes: list[Callable[[], Coroutine[Any, Any, object]]] = [
                lambda: api.create(PODS, "ns", a_pod()),
                lambda: api.patch(PODS, "ns", "p", {"metadata": {"labels": {"a": "1"}}}),
                lambda: api.delete(PODS, "ns", "p"),
            ]
            for write in writes:
                with pytest.raises(NotLeadingError, match="not certain that it leads"):
                    await write()
            assert server.asked == []
            assert await api.find(PODS, "ns", "p") is not None, "it may read"

    asyncio.run(main())


class Recorder:
    """In the place of SkyPilot's client, a provider's client or ssh: notes every call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*_: object, **__: object) -> str:
            self.calls.append(name)
            return "request-1"

        return call


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(sdk, "load", lambda: (made, made))
    monkeypatch.setattr(cloud_api, "_ec2", lambda _region: made)
    monkeypatch.setattr(sky, "need_sky", lambda: None)
    monkeypatch.setattr(sky, "sky_offers", lambda _config: [])
    return made


def test_skypilot_clouds_and_machines_hear_nothing_of_an_old_leader(
    leaders: tuple[World, Process], recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, old = leaders
    contexts: list[SkyContext] = []
    monkeypatch.setattr(sky, "SkyCloud", lambda context, *_: contexts.append(context))
    clock = SkyClock(lambda: made.now, Pace())
    sky.sky_cloud(
        SkyConfig(kind="skypilot"),
        Home(tmp_path),
        tmp_path,
        clock=clock,
        controller="us",
        max_log=100,
        fence=old.election.fence,
    )
    (context,) = contexts
    instance = InstanceRef("aws", "us-east-1", "i-1")
    access = Access("10.0.0.1", "ubuntu", "key")
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "down": lambda: context.sky.down("i-000001"),
        "terminate_instances": lambda: context.clouds.end(instance),
        "modify_instance_attribute": lambda: context.clouds.arm(instance),
    }

    async def main() -> None:
        for name, call in calls.items():
            await call()
            assert recorder.calls[-1] == name
        sleep_through_a_takeover(made, old)
        recorder.calls.clear()
        for call in [*calls.values(), lambda: context.transport.call("i-000001", access, "start", {})]:
            with pytest.raises(SkyUnreachableError, match="not certain that it leads"):
                await call()
        assert recorder.calls == []

    asyncio.run(main())
