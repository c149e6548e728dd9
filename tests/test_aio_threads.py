"""Blocking calls in threads, and what is asked of them together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import anyio
import pytest

from starburst.aio import (
    Gathered,
    SerialThread,
    in_thread,
    running,
)
from tests.app.virtual import run


def test_a_blocking_call_gives_its_result_or_its_error():
    def refuses() -> None:
        raise LookupError

    async def main() -> None:
        assert await in_thread(threading.get_ident) != threading.get_ident()
        with pytest.raises(LookupError):
            await in_thread(refuses)

    asyncio.run(main())


def test_a_blocking_call_can_be_given_up():
    async def main() -> bool:
        release = threading.Event()
        with anyio.move_on_after(0.05) as scope:
            await in_thread(release.wait)
        release.set()
        return scope.cancelled_caught

    assert asyncio.run(main())


def serially(work: Callable[[SerialThread], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        thread = SerialThread("test")
        try:
            await work(thread)
        finally:
            thread.close()

    asyncio.run(main())


def test_calls_of_a_serial_thread_are_made_in_order_and_the_loop_goes_on():
    async def main(thread: SerialThread) -> None:
        made, release = list[int](), threading.Event()
        first = running(thread.run(lambda: (release.wait(), made.append(1))), "first")
        async with first as one, running(thread.run(lambda: made.append(2)), "second") as two:
            for _ in range(3):
                await asyncio.sleep(0.01)
            assert not made
            release.set()
            await asyncio.wait([one, two])
        assert made == [1, 2]

    serially(main)


def test_a_call_whose_caller_is_cancelled_is_made_all_the_same():
    async def main(thread: SerialThread) -> None:
        made, begun, release = list[int](), threading.Event(), threading.Event()
        blocking = running(thread.run(lambda: (begun.set(), release.wait(), made.append(1))), "one")
        async with blocking, running(thread.run(lambda: made.append(2)), "two"):
            await asyncio.to_thread(begun.wait)
        assert not made
        release.set()
        await thread.drain()
        assert made == [1, 2]

    serially(main)


class Desk:
    """Answers many keys in one call of a second; counts its calls."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.error: Exception | None = None

    async def answers(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.calls.append(list(keys))
        await asyncio.sleep(1.0)
        if self.error is not None:
            raise self.error
        return {key: key.upper() for key in keys if key != "unknown"}


def test_what_is_asked_while_a_call_goes_on_is_asked_together():
    desk = Desk()

    async def asking() -> list[str]:
        gathered = Gathered(desk.answers)

        async def later(key: str) -> str:
            await asyncio.sleep(0.5)
            return await gathered.ask(key)

        return await asyncio.gather(gathered.ask("a"), gathered.ask("b"), *map(later, "cd"))

    assert run(asking()) == ["A", "B", "C", "D"]
    assert desk.calls == [["a", "b"], ["c", "d"]]


def test_a_failed_call_fails_for_all_who_asked_and_the_next_one_is_anew():
    desk = Desk()

    async def asking() -> None:
        gathered = Gathered(desk.answers)
        desk.error = ValueError("no")
        failed = await asyncio.gather(gathered.ask("a"), gathered.ask("b"), return_exceptions=True)
        assert failed == [desk.error, desk.error]
        desk.error = None
        assert await gathered.ask("a") == "A"
        with pytest.raises(KeyError):
            await gathered.ask("unknown")

    run(asking())
    assert desk.calls == [["a", "b"], ["a"], ["unknown"]]


def test_an_asker_that_is_cancelled_takes_no_answer_from_others():
    desk = Desk()

    async def asking() -> str:
        gathered = Gathered(desk.answers)
        first, second = running(gathered.ask("a"), "first"), running(gathered.ask("b"), "second")
        async with first as cancelled, second as goes_on:
            await asyncio.sleep(0.5)
            cancelled.cancel()
            return await goes_on

    assert run(asking()) == "B"
    assert desk.calls == [["a", "b"], ["a", "b"]]
