"""A time limit for one call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(limit_s: float, call: Coroutine[Any, Any, T]) -> T:
    """What the call returns; it is cancelled when its time is up, or when we are.

    Unlike asyncio.wait_for before Python 3.12, it never swallows a cancellation that comes just as the call
    ends: a task that goes round in a loop would then never stop.

    Raises:
        TimeoutError: it took more than `limit_s` wall seconds.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise TimeoutError(f"no answer within {limit_s:g} s")
        return task.result()
    finally:
        task.cancel()
