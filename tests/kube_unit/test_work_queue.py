"""A queue of keys: each waits once, and is worked on by one at a time."""

from __future__ import annotations

import asyncio

from starburst.kube.work_queue import WorkQueue


def test_a_key_that_is_added_while_it_is_worked_on_comes_again_afterwards() -> None:
    async def act() -> None:
        queue = WorkQueue()
        for key in ("a", "b", "a"):
            queue.add(key)
        assert await queue.take() == "a"
        queue.add("a")
        assert await queue.take() == "b"
        waiting = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0)
        assert not waiting.done(), "somebody else works on it"
        queue.done("b")
        queue.done("a")
        assert await waiting == "a"

    asyncio.run(act())
