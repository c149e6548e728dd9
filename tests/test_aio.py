"""The async kit, in virtual time."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable

import anyio
import pytest

from starburst.aio import (
    Backoff,
    Debounce,
    TaskSet,
    Wake,
    answer_within,
    first_of,
    retry,
    running,
)
from tests.app.virtual import run, wall


async def fails(after_s: float, error: Exception) -> None:
    await asyncio.sleep(after_s)
    raise error


def test_a_deadline_works_in_virtual_time_and_keeps_no_cancellation_to_itself():
    async def limited(answer: asyncio.Event) -> None:
        with anyio.fail_after(5):
            await answer.wait()

    async def main() -> None:
        began = wall()
        with pytest.raises(TimeoutError):
            await limited(asyncio.Event())
        assert wall() == pytest.approx(began + 5)
        answer = asyncio.Event()
        async with running(limited(answer), "limited") as task:
            await asyncio.sleep(1)
            answer.set()
            task.cancel()  # in the same round of the loop as the answer
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not count cancellations")
def test_a_cancellation_that_comes_with_the_deadline_wins():
    async def limited() -> None:
        with anyio.move_on_after(5):
            await asyncio.sleep(100)

    async def main() -> bool:
        async with running(limited(), "limited") as task:
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_at(wall() + 5, task.cancel)
            await asyncio.wait([task])
            return task.cancelled()

    assert run(main())


def test_no_answer_in_time_says_how_long_it_was_waited_for():
    async def main() -> None:
        with answer_within(5):
            await asyncio.sleep(1)
        with pytest.raises(TimeoutError, match="no answer within 5 s"), answer_within(5):
            await asyncio.sleep(100)
        with pytest.raises(LookupError), answer_within(5):
            await fails(1, LookupError())

    run(main())


# --- TaskSet -----------------------------------------------------------------------------------------------


def test_a_key_has_one_task_at_a_time():
    async def main() -> None:
        begun: list[float] = []

        async def work() -> float:
            begun.append(wall())
            await asyncio.sleep(1)
            return wall()

        tasks = TaskSet()
        first = tasks.ensure("a", work)
        assert tasks.ensure("a", work) is first
        assert await tasks.ensure("b", work) == await first
        assert len(begun) == 2
        assert not len(tasks)
        await tasks.ensure("a", work)
        assert len(begun) == 3

    run(main())


def test_each_failure_is_heard_once_and_in_order():
    async def main() -> None:
        tasks = TaskSet()
        tasks.ensure("late", lambda: fails(2, IndexError()))
        tasks.ensure("early", lambda: fails(1, KeyError()))
        await asyncio.sleep(3)
        with pytest.raises(KeyError):
            await tasks.until_failure()
        with pytest.raises(IndexError):
            await tasks.until_failure()
        with anyio.move_on_after(10) as scope:
            await tasks.until_failure()
        assert scope.cancelled_caught

    run(main())


def test_all_tasks_are_cancelled_also_those_that_begin_meanwhile():
    async def main() -> None:
        tasks, ended = TaskSet(), list[str]()

        async def work(name: str, then: Callable[[], object] = lambda: None) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                then()
                ended.append(name)

        tasks.ensure("first", lambda: work("first", lambda: tasks.ensure("next", lambda: work("next"))))
        await asyncio.sleep(1)
        await tasks.cancel()
        assert not len(tasks)
        assert ended == ["first", "next"]

    run(main())


# --- parts of one whole ------------------------------------------------------------------------------------


def test_the_first_part_to_end_ends_the_others():
    async def main() -> None:
        began, ended = wall(), list[str]()

        async def goes_on() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                ended.append("other")

        assert await first_of({"other": goes_on(), "short": asyncio.sleep(1)}) == "short"
        assert ended == ["other"]
        assert wall() == pytest.approx(began + 1)
        assert await first_of({"a": asyncio.sleep(1), "b": asyncio.sleep(1)}) == "a"
        with pytest.raises(LookupError):
            await first_of({"fails": fails(1, LookupError()), "other": goes_on()})

    run(main())


def test_who_runs_parts_and_is_cancelled_ends_them():
    async def main() -> None:
        ended = list[str]()

        async def goes_on() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                ended.append("part")

        async with running(first_of({"a": goes_on(), "b": goes_on()}), "both"):
            await asyncio.sleep(1)
        assert ended == ["part", "part"]

    run(main())


# --- again and again ---------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_longest_and_begin_anew():
    backoff = Backoff(0.5, 3)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1, 2, 3, 3]
    backoff.reset()
    assert backoff.next_s() == 0.5


def test_jitter_takes_up_to_half_of_a_pause():
    backoff = Backoff(8, 8, random.Random(1))
    pauses = [backoff.next_s() for _ in range(100)]
    assert min(pauses) < 5
    assert max(pauses) > 7
    assert all(4 <= pause <= 8 for pause in pauses)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_is_repeated_until_it_succeeds(is_async: bool):
    errors: list[Exception] = [OSError("full"), LookupError("gone")]

    def call() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    async def slow_call() -> str:
        return call()

    async def main() -> tuple[str, float, list[str]]:
        began, heard = wall(), list[str]()
        result = await retry(slow_call if is_async else call, Backoff(1, 9), lambda it: heard.append(str(it)))
        return str(result), wall() - began, heard

    assert run(main()) == ("done", 3, ["full", "gone"])


def test_an_error_that_is_not_to_be_tried_again_is_raised():
    def refuse(error: Exception) -> None:
        raise error

    with pytest.raises(LookupError):
        run(retry(lambda: fails(0, LookupError()), Backoff(1, 1), refuse))


# --- wake-ups ----------------------------------------------------------------------------------------------


def test_a_wait_ends_by_a_ring_or_by_its_limit():
    async def main() -> None:
        began, bell = wall(), Wake()
        assert not await bell.wait(2)
        assert wall() == pytest.approx(began + 2)
        asyncio.get_running_loop().call_later(1, bell.ring)
        assert await bell.wait(5)
        assert wall() == pytest.approx(began + 3)
        bell.ring()
        bell.ring()
        assert await bell.wait()
        assert not await bell.wait(0)

    run(main())


def looks(hinted_at: list[float]) -> list[float]:
    """When hints at these times are passed on."""

    async def main() -> list[float]:
        began, seen = wall(), list[float]()
        debounce = Debounce(lambda: seen.append(round(wall() - began, 3)), 2.0)
        for at in hinted_at:
            await asyncio.sleep(began + at - wall())
            debounce.hint()
        await asyncio.sleep(10)
        return seen

    return run(main())


@pytest.mark.parametrize(
    ("hinted_at", "passed_on"),
    [
        ([1.0], [1.0]),
        ([0.0, 2.5, 7.0], [0.0, 2.5, 7.0]),
        ([0.0, *(0.5 + 0.01 * number for number in range(300))], [0.0, 2.0, 4.0]),
        ([0.0, 1.9, 3.9], [0.0, 2.0, 4.0]),
    ],
)
def test_of_many_hints_none_is_lost_and_they_are_passed_on_now_and_then(
    hinted_at: list[float], passed_on: list[float]
):
    assert looks(hinted_at) == passed_on
