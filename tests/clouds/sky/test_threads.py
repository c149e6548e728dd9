"""A call that blocks for ever holds nobody up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from starburst.aio import in_thread


def test_what_the_work_returns_or_raises_is_what_is_awaited() -> None:
    async def story() -> None:
        assert await in_thread(lambda: 1) == 1
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)

    asyncio.run(story())


def test_the_loop_ends_though_a_call_never_does() -> None:
    release = threading.Event()

    async def story() -> str:
        task = asyncio.create_task(in_thread(release.wait))
        await asyncio.sleep(0)
        task.cancel()
        return "over"

    assert asyncio.run(story()) == "over"
    release.set()
