"""A time limit that keeps no cancellation to itself."""

from __future__ import annotations

import asyncio

import pytest

from starburst.app.within import within
from tests.app.virtual import run, wall


def test_an_answer_in_time_is_returned():
    assert run(within(1.0, asyncio.sleep(0.5, "answer"))) == "answer"


def test_an_error_is_raised():
    async def fails() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        run(within(1.0, fails()))


def test_no_answer_in_time_is_an_error_and_the_call_is_cancelled():
    async def main() -> None:
        ended = asyncio.Event()

        async def hangs() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                ended.set()

        began = wall()
        with pytest.raises(TimeoutError, match="within 5 s"):
            await within(5.0, hangs())
        await ended.wait()
        assert wall() == pytest.approx(began + 5)

    run(main())


def test_a_cancellation_just_as_the_call_ends_is_not_swallowed():
    async def main() -> None:
        answer = asyncio.Event()
        caller = asyncio.create_task(within(5.0, answer.wait()))
        await asyncio.sleep(1)
        answer.set()
        await asyncio.sleep(0)  # the call has its answer, its caller has not heard of it
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    run(main())
