"""At most one refresh of SkyPilot's listing is under way, and what it brings is for all whom it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from starburst.clouds.sky.access import sdk
from starburst.clouds.sky.access.errors import SlowError
from starburst.clouds.sky.access.ports import LaunchSpec, SkyError
from starburst.clouds.sky.access.sdk import SdkApi
from tests.clouds.sky import skypilot_stub
from tests.clouds.sky.skypilot_stub import Served


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(sdk, "LIST_S", 0.2)
    return skypilot_stub.install(monkeypatch)


def records(*names: str) -> list[dict[str, Any]]:
    up = SimpleNamespace(value="UP")
    return [{"name": name, "handle": None, "status": up, "launched_at": 1} for name in names]


async def listed(api: SdkApi, *names: str) -> list[str]:
    return [status.name for status in await api.clusters(refresh=names)]


def play(story: Callable[[SdkApi], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(story(SdkApi()), 20)

    asyncio.run(main())


async def under_way(served: Served, count: int) -> None:
    """So many refreshes have been asked for, and the last is awaited."""
    while len(served.refreshes) < count or not served.at_once:
        await asyncio.sleep(0.001)


def test_a_late_answer_is_what_the_next_caller_gets_and_nothing_is_asked_twice(served: Served) -> None:
    async def story(api: SdkApi) -> None:
        with pytest.raises(SlowError):
            await listed(api, "a", "b")
        with pytest.raises(SlowError):
            await listed(api, "b")
        assert served.refreshes == [("a", "b")]
        served.of("request-0").set_result(records("a", "b"))
        assert await listed(api, "b") == ["b"], "of the two it asked for one"
        served.of("request-1").set_result(records("b"))
        assert await listed(api, "b") == ["b"]
        assert served.refreshes == [("a", "b"), ("b",)], "what has been taken is not taken again"

    play(story)


def test_a_caller_with_other_names_waits_for_the_one_under_way_and_then_asks(served: Served) -> None:
    async def story(api: SdkApi) -> None:
        with pytest.raises(SlowError):
            await listed(api, "a")
        more = asyncio.create_task(listed(api, "a", "c"))
        await under_way(served, 1)
        assert served.refreshes == [("a",)]
        served.of("request-0").set_result(records("a"))
        served.of("request-1").set_result(records("a", "c"))
        assert await more == ["a", "c"]
        assert served.refreshes == [("a",), ("a", "c")]

    play(story)


def test_callers_at_the_same_time_are_served_one_after_the_other(served: Served) -> None:
    async def story(api: SdkApi) -> None:
        for number in range(3):
            served.of(f"request-{number}").set_result(records("a", "b", "c"))
        names: Sequence[str] = ("a", "b", "c")
        found = await asyncio.gather(*(listed(api, name) for name in names))
        assert len(found) == 3
        assert (sorted(served.refreshes), served.most_at_once) == ([("a",), ("b",), ("c",)], 1)

    play(story)


def test_a_refresh_that_failed_is_asked_for_anew(served: Served) -> None:
    async def story(api: SdkApi) -> None:
        served.of("request-0").set_exception(RuntimeError("the server was restarted"))
        with pytest.raises(SkyError, match="restarted"):
            await listed(api, "a")
        served.of("request-1").set_result(records("a"))
        assert await listed(api, "a") == ["a"]

    play(story)


def test_a_listing_without_a_refresh_does_not_wait_for_one(served: Served) -> None:
    async def story(api: SdkApi) -> None:
        slow = asyncio.create_task(listed(api, "a"))
        await under_way(served, 1)
        served.of("request-1").set_result(records("a", "b"))
        assert [one.name for one in await api.clusters()] == ["a", "b"]
        assert not slow.done()
        with pytest.raises(SlowError):
            await slow

    play(story)


def test_a_launch_prints_nothing_amid_the_log(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    async def story(api: SdkApi) -> None:
        spec = LaunchSpec("sb-1", "aws/us-east-1", "p3.2xlarge", False, (), 5)
        assert await api.launch(spec) == "launch-0"
        assert await api.launch(spec) == "launch-0"

    play(story)
    assert capfd.readouterr() == ("", "")
