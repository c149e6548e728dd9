"""Calls that block, in threads that nobody waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns, from a thread of its own.

    Unlike asyncio.to_thread's, the thread holds up neither the loop's end nor the program's: SkyPilot's SDK
    goes on asking a server that answers 503 for ten minutes.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(error: BaseException | None, result: Any = None) -> None:
        if done.done():  # whoever asked has gone
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        try:
            told = (None, work())
        except BaseException as error:  # it is raised where the result is awaited
            told = (error, None)  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, *told)

    threading.Thread(target=run, daemon=True).start()
    return await done
