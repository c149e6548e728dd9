"""Virtual time: an event loop that never waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: Where time begins, and virtual seconds after which something is thought to hang.
START, LIMIT_S = 1_000_000.0, 1000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time stands still while there is something to do, and jumps to the next timer when there is not."""

    def __init__(self, start: float = START) -> None:
        self.now = start
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen"
        self._loop.now += timeout
        return super().select(0)


def run(main: Coroutine[Any, Any, T], start: float = START) -> T:
    """asyncio.run in virtual time."""
    loop = VirtualLoop(start)
    loop.set_exception_handler(lambda _loop, _context: None)  # tasks of a dead process have nobody to tell
    try:
        return loop.run_until_complete(asyncio.wait_for(main, LIMIT_S))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()


def wall() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()
