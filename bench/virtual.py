"""Virtual time: an event loop that never waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


#: Real seconds for which time stands still while a thread works. One that takes longer is taken to hang.
THREAD_S = 5.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time stands still while there is something to do, and jumps to the next timer when there is not.

    A call in a thread (`run_in_executor`) counts as something to do: it takes no virtual time.
    """

    def __init__(self, start: float) -> None:
        self.now = start
        #: Calls in threads whose results are awaited.
        self.in_threads = 0
        super().__init__(_Jump(self))
        # What is due within that is due: seconds since the epoch are no finer.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> asyncio.Future[Any]:
        """As every loop does it, counted."""
        future = super().run_in_executor(executor, func, *args)
        self.in_threads += 1
        future.add_done_callback(self._left_thread)
        return future

    def _left_thread(self, _future: object) -> None:
        self.in_threads -= 1


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if self._loop.in_threads and timeout != 0:
            ready = super().select(THREAD_S)
            if ready:
                return ready
        assert timeout is not None, "nothing will ever happen"
        self._loop.now += timeout
        return super().select(0)


class AtOnce(ThreadPoolExecutor):
    """An executor for such a loop: no thread of it runs while virtual time flies."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Do it now, in the thread that asks."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # whoever awaits it hears of it
            future.set_exception(error)
        return future
