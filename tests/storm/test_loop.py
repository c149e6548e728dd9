"""The loop of the storm against asyncio's own, whose rounds it makes itself."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from anyio import move_on_after

from bench.virtual import VirtualLoop
from tests.storm.loop import LIFE, StormLoop, nap, of_life
from tests.storm.sandbox import START


def _trace(loop: VirtualLoop, seed: int) -> list[tuple[float, int]]:
    """What happens when, of timers that set and cancel others, many of them for the same moment."""
    draw, happened, timers = Random(seed), list[tuple[float, int]](), list[asyncio.TimerHandle]()

    def happen(number: int) -> None:
        happened.append((loop.time(), number))
        for timer in draw.sample(timers, min(len(timers), 3)):
            timer.cancel()
        if len(happened) < 2000:
            for _ in range(draw.choice((1, 1, 2, 3))):
                timers.append(loop.call_later(draw.choice((0.0, 1.0, 1.0, 7.5)), happen, len(timers)))
            if draw.random() < 0.2:
                loop.call_soon(happen, -len(happened))

    async def whole() -> None:
        for number in range(300):
            timers.append(loop.call_later(draw.choice((1.0, 2.0)), happen, number))
        await asyncio.sleep(500.0)

    try:
        loop.run_until_complete(whole())
    finally:
        loop.close()
    return happened


@pytest.mark.parametrize("seed", range(5))
def test_what_happens_and_in_which_order_is_what_asyncio_does(seed: int) -> None:
    expected = _trace(VirtualLoop(START), seed)
    assert len(expected) > 1000
    assert _trace(StormLoop(START, 0), seed) == expected


def test_a_deadline_of_anyio_ends_a_sleep_and_is_taken_for_one() -> None:
    loop = StormLoop(START, 0)

    async def whole() -> bool:
        with move_on_after(1.0) as scope:
            await nap(5.0)
        return scope.cancelled_caught

    try:
        assert loop.run_until_complete(whole())
    finally:
        loop.close()


def test_who_is_suspended_does_late_what_it_would_have_done_and_the_dead_do_nothing() -> None:
    loop, did = StormLoop(START, 0), list[tuple[float, str]]()

    async def live(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(1.0)
            did.append((loop.time() - START, name))

    async def whole() -> None:
        tasks = [of_life(life, lambda: loop.create_task(live(f"life {LIFE.get()}"))) for life in (1, 2, 3)]
        await asyncio.sleep(1.5)
        loop.suspend(1)
        loop.kill(2)
        await asyncio.sleep(2.0)
        loop.suspend(1)  # by another fault
        await asyncio.sleep(3.0)
        loop.resume(1)
        await asyncio.wait([tasks[0], tasks[2]])

    loop.run_until_complete(whole())
    loop.bury()
    loop.close()
    assert did[:3] == [(1.0, "life 1"), (1.0, "life 2"), (1.0, "life 3")]
    assert did[3:] == [(2.0, "life 3"), (3.0, "life 3"), (6.5, "life 1"), (7.5, "life 1")]
