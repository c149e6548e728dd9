"""Virtual time: an event loop that never waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time stands still while there is something to do, and jumps to the next timer when there is not."""

    def __init__(self, start: float) -> None:
        self.now = start
        super().__init__(_Jump(self))
        # What is due within that is due: seconds since the epoch are no finer.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do it now, in the thread that asks: no other thread runs while virtual time flies."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # it is raised where the result is awaited
            future.set_exception(error)
        return future


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen"
        self._loop.now += timeout
        return super().select(0)
