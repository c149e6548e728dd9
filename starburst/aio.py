"""The async kit: background tasks, retries, wake-ups and threads, on asyncio's loop.

Which tool for what:

- A deadline is AnyIO's own: `with anyio.fail_after(limit_s):` raises TimeoutError, `move_on_after` goes on,
  `answer_within` raises one whose message people may see.
  Never `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that arrives together with the
  result, so that a loop around it never stops. A scope whose deadline has passed cancels *every* await in it:
  cleanup that has to await needs `with anyio.CancelScope(shield=True):`.
- `TaskSet` owns background tasks that come and go, one per key; a failure is raised by `until_failure`.
- `first_of` runs the parts of a whole side by side until one ends or fails; `running` keeps one going during
  a block.
- `retry` repeats a call until it succeeds, with the pauses of a `Backoff`.
- `Wake` is the bell of a loop that works when there is news, or when some time has passed.
- `Debounce` passes on the first of many hints at once, and the others together.
- `Gathered` makes calls together that are asked for while an earlier one goes on.
- `in_thread` runs a blocking call that may be abandoned, each in a thread of its own; `SerialThread` runs
  calls that must not be abandoned, one after another, in the order in which they were handed in.

Nothing else calls `create_task`. Everything here reads the loop's clock, so it also works in virtual time.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import random
import threading
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Generic, TypeVar, cast, overload

from anyio import move_on_after

K = TypeVar("K")
T = TypeVar("T")

#: Unheard failures that a TaskSet keeps for `until_failure`; the oldest ones count.
FAILURES_KEPT = 100


@contextmanager
def answer_within(limit_s: float) -> Iterator[None]:
    """AnyIO's deadline for a call to another system, with an error that says how long it was waited for.

    Raises:
        TimeoutError: the block took more than `limit_s` seconds of the loop; it was cancelled.
    """
    with move_on_after(limit_s) as scope:
        yield
    if scope.cancelled_caught:
        raise TimeoutError(f"no answer within {limit_s:g} s")


class TaskSet:
    """Background tasks, at most one per key at a time."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}
        self._failures: deque[BaseException] = deque()
        self._failed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._tasks

    def ensure(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """The task of this key that goes on, also if it was cancelled; a new one if there is none."""
        task = self._tasks.get(key)
        if task is None or task.done():
            task = self._tasks[key] = asyncio.create_task(work(), name=str(key))
            task.add_done_callback(partial(self._ended, key))
        return task

    async def until_failure(self) -> None:
        """Wait until a task has failed, and raise what it raised; each failure is raised once, in order."""
        await self._failed.wait()
        error = self._failures.popleft()
        if not self._failures:
            self._failed.clear()
        raise error

    async def cancel(self) -> None:
        """Cancel all tasks, also those that begin meanwhile, and wait for their ends."""
        while self._tasks:
            await _cancel(list(self._tasks.values()))

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and len(self._failures) < FAILURES_KEPT:
            self._failures.append(error)
            self._failed.set()


async def first_of(parts: Mapping[str, Coroutine[Any, Any, object]]) -> str:
    """Run all parts until one ends; cancel the others, wait for them, and return the name of the first.

    Of several that end at once the first in the order of `parts` counts.

    Raises:
        Exception: what a part raised.
    """
    tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task.done()]
    finally:
        await _cancel(tasks)
    for task in ended:
        task.result()
    return ended[0].get_name()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, T], name: str) -> AsyncIterator[asyncio.Task[T]]:
    """Do `work` in the background during the block; it is cancelled and waited for at the end of it.

    A failure of `work` does not end the block: await the task, or see to it that `work` does not fail.
    """
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        await _cancel([task])


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Backoff:
    """Pauses that double from `first_s` to at most `longest_s` seconds.

    `jitter` draws each pause from between half of it and the whole, so that many that failed together do not
    try again together.
    """

    def __init__(self, first_s: float, longest_s: float, jitter: random.Random | None = None) -> None:
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s
        self._jitter = jitter

    def next_s(self) -> float:
        """How long to pause now, seconds; the next pause is longer."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return pause_s if self._jitter is None else self._jitter.uniform(pause_s / 2, pause_s)

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._next_s = self._first_s

    async def pause(self) -> None:
        """Sleep for the next pause."""
        await asyncio.sleep(self.next_s())


@overload
async def retry(
    call: Callable[[], Awaitable[T]], backoff: Backoff, heard: Callable[[Exception], None]
) -> T: ...
@overload
async def retry(call: Callable[[], T], backoff: Backoff, heard: Callable[[Exception], None]) -> T: ...
async def retry(call: Callable[[], Any], backoff: Backoff, heard: Callable[[Exception], None]) -> Any:
    """The result of the first call that succeeds; after one that fails there is a pause.

    `heard` is given each error and raises if it is not to be tried again. A call may be a coroutine function.
    """
    while True:
        try:
            result = call()
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            heard(error)
        await backoff.pause()


class Wake:
    """A bell for one waiting task. A ring while nobody waits is kept; several count as one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._rung = False

    def ring(self) -> None:
        """End the wait that goes on, or the next one at once; to be called in the loop's thread."""
        self._rung = True
        self._event.set()

    async def wait(self, limit_s: float = math.inf) -> bool:
        """Wait for a ring for at most this long (seconds of the loop); whether it rang."""
        if math.isinf(limit_s):
            await self._event.wait()
        else:
            timer = asyncio.get_running_loop().call_later(max(0.0, limit_s), self._event.set)
            try:
                await self._event.wait()
            finally:
                timer.cancel()
        rung, self._rung = self._rung, False
        self._event.clear()
        return rung


class Debounce:
    """Calls `act` at the first hint, and after `rest_s` once more if hints came meanwhile."""

    def __init__(self, act: Callable[[], None], rest_s: float) -> None:
        self._act = act
        self._rest_s = rest_s
        #: Ends the rest; None while there is none.
        self._resting: asyncio.TimerHandle | None = None
        self._again = False

    def hint(self) -> None:
        """Return at once; to be called in the loop's thread."""
        if self._resting is None:
            self._pass_on()
        else:
            self._again = True

    def _pass_on(self) -> None:
        self._again = False
        self._resting = asyncio.get_running_loop().call_later(self._rest_s, self._rested)
        self._act()

    def _rested(self) -> None:
        self._resting = None
        if self._again:
            self._pass_on()


class Gathered(Generic[K, T]):
    """A call for many keys at once, asked for one key at a time: while one goes on, the next gathers."""

    def __init__(self, call: Callable[[Sequence[K]], Awaitable[Mapping[K, T]]]) -> None:
        self._call = call
        self._next = _Batch[K, T]()
        self._turn = asyncio.Lock()

    async def ask(self, key: K) -> T:
        """The call's answer for this key.

        Raises:
            KeyError: the call has no answer for it.
            Exception: what the call raised.
        """
        batch = self._next
        batch.keys.append(key)
        await asyncio.sleep(0)  # who is about to ask asks along
        async with self._turn:
            if self._next is batch:
                self._next = _Batch()
            if batch.answers is None and batch.error is None:  # also after the asker before was cancelled
                try:
                    batch.answers = await self._call(batch.keys)
                except Exception as error:
                    batch.error = error
        if batch.error is not None:
            raise batch.error
        assert batch.answers is not None
        return batch.answers[key]


class _Batch(Generic[K, T]):
    def __init__(self) -> None:
        self.keys: list[K] = []
        self.answers: Mapping[K, T] | None = None
        self.error: Exception | None = None


class _OwnThread(Executor):
    """Runs each call in a daemon thread of its own."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        threading.Thread(target=_settle, args=(future, partial(fn, *args, **kwargs)), daemon=True).start()
        return future


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # it is raised where the result is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


_OWN_THREAD = _OwnThread()


async def in_thread(call: Callable[[], T]) -> T:
    """What a blocking call returns. If the caller is cancelled the call goes on alone and its result is lost.

    Unlike the threads of asyncio.to_thread and AnyIO, this one holds up neither the end of the loop nor that
    of the program: a library may go on asking a dead server for ten minutes.
    """
    return await asyncio.get_running_loop().run_in_executor(_OWN_THREAD, call)


class SerialThread:
    """One thread for blocking calls that have to be made whole, each after all earlier ones."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._last: asyncio.Future[Any] | None = None

    async def run(self, call: Callable[[], T]) -> T:
        """What the call returns. It is made, and its order kept, even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        self._last = loop.run_in_executor(self._executor, call)
        return cast(T, await asyncio.shield(self._last))

    async def drain(self) -> None:
        """Wait until every call that was handed in has been made."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def close(self) -> None:
        """Wait, blocking, for what was handed in, and end the thread; `run` may not be called after this."""
        self._executor.shutdown()
