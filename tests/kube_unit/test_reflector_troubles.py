"""A reflector whose watch breaks, is silent, is refused or is too old: it goes on, and asks with pauses."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace

import pytest

from starburst.kube import api as api_module
from starburst.kube import reflector as reflector_module
from starburst.kube.reflector import FIRST_PAUSE_S, LAST_PAUSE_S, UNSERVED_PAUSE_S
from starburst.kube.resources import PODS
from tests.kube_unit.reflector_scene import scene
from tests.kube_unit.samples import until


def test_half_a_line_at_a_broken_end_is_dropped_and_comes_again_whole() -> None:
    async def main() -> None:
        async with scene("a") as it:
            await it.watching()
            event = json.dumps({"type": "DELETED", "object": it.server.get(PODS, "ns", "a")}).encode()
            it.server.cut_watches(event[:-1])
            await until(lambda: len(it.asked("watch")) == 2)
            await it.watching()
            assert list(it.reflector) == [("a", "Pending")]

    asyncio.run(main())


@pytest.mark.parametrize(
    "line",
    [
        "<html>bad gateway</html>",
        '{"message": "no healthy upstream"}',
        '{"type": "MODIFIED", "object": null}',
        '{"type": "ERROR"}',
        '{"type": "MODIFIED", "object": {"metadata": {"name": "a"}}}',
        '{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "x"}}}',
    ],
)
def test_a_line_that_is_no_event_breaks_the_watch_and_nothing_else(line: str) -> None:
    async def main() -> None:
        async with scene("a") as it:
            await it.watching()
            it.server.cut_watches(f"{line}\n".encode())
            await until(lambda: len(it.asked("watch")) == 2)
            it.set_phase("a", "Running")
            await until(it.caught_up)
            assert list(it.reflector) == [("a", "Running")]

    asyncio.run(main())


def test_a_silent_watch_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "SILENCE_S", 0.03)

    async def main() -> None:
        async with scene("a") as it:
            await until(lambda: len(it.asked("watch")) >= 2)
            assert len(it.asked("list")) == 1

    asyncio.run(main())


def test_pauses_double_up_to_the_longest_and_are_drawn_between_half_and_all() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", status=500, times=12)
            await it.watching()
            full = [min(FIRST_PAUSE_S * 2**i, LAST_PAUSE_S) for i in range(12)]
            assert len(it.sleeps.all) == 12
            assert all(most / 2 <= slept <= most for slept, most in zip(it.sleeps.all, full, strict=True))
            assert len({slept / most for slept, most in zip(it.sleeps.all, full, strict=True)}) == 12
            draw = random.Random(1)
            draw.randint(*reflector_module.WATCH_S)
            assert it.sleeps.all[0] == draw.uniform(FIRST_PAUSE_S / 2, FIRST_PAUSE_S)
            assert len(it.asked("list")) == 1

    asyncio.run(main())


def test_pauses_are_short_again_after_an_event() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", status=500, times=5)
            await it.watching()
            it.set_phase("a", "Running")
            await until(it.caught_up)
            it.server.cut_watches()
            await until(lambda: len(it.sleeps.all) == 6)
            assert it.sleeps.all[-1] <= FIRST_PAUSE_S < it.sleeps.all[-2]

    asyncio.run(main())


def test_a_server_that_forgets_everything_at_once_is_not_listed_without_pause() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", status=410, times=8)
            await it.watching()
            assert len(it.asked("list")) == 9
            assert it.sleeps.all[-1] >= LAST_PAUSE_S / 2

    asyncio.run(main())


def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_pause() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", text="", times=6)
            await it.watching()
            assert it.sleeps.all[-1] >= FIRST_PAUSE_S * 2**4

    asyncio.run(main())


def test_a_server_that_asks_to_be_left_alone_is() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", status=429, headers={"Retry-After": "7"})
            await it.watching()
            assert it.sleeps.all == [7.0]

    asyncio.run(main())


def test_watches_last_differently_long_so_that_clients_do_not_come_back_together() -> None:
    async def main() -> None:
        async with scene("a") as it:
            for count in range(1, 6):
                while len(it.asked("watch")) < count:
                    await asyncio.sleep(0.001)
                await it.watching()
                it.server.end_watches()
            lasts = [int(asked.query["timeoutSeconds"]) for asked in it.server.asked[1:]]
            assert all(90 <= last <= 140 for last in lasts)
            assert len(set(lasts)) > 1

    asyncio.run(main())


@pytest.mark.parametrize("optional", [True, False])
def test_an_optional_kind_that_the_server_does_not_serve_is_asked_for_seldom(optional: bool) -> None:
    async def main() -> None:
        async with scene("a", resource=replace(PODS, optional=optional)) as it:
            await it.watching()
            it.server.fail("GET", status=404, times=1)
            it.server.expire_watches()
            await until(lambda: len(it.asked("list")) >= 3)
            assert (UNSERVED_PAUSE_S in it.sleeps.all) == optional
            assert "refused: 404" in it.told.all

    asyncio.run(main())
