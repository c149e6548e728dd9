"""Tests in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from bench.virtual import VirtualLoop

T = TypeVar("T")

#: Where time begins, and virtual seconds after which something is thought to hang.
START, LIMIT_S = 1_000_000.0, 1000.0


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
