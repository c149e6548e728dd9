"""What must be done, tried until it is: shortages pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import structlog

from starburst.runs.supervisor.files import FULL_DISK

#: Seconds between tries: at first, at most.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0

T = TypeVar("T")

log = structlog.get_logger()


@overload
async def waited_out(work: Callable[[], Awaitable[T]], whose: object = ...) -> T: ...
@overload
async def waited_out(work: Callable[[], T], whose: object = ...) -> T: ...
async def waited_out(work: Callable[[], Any], whose: object = None) -> Any:
    """What this comes to, however often it takes: a full disk, or a shortage of open files, passes.

    Of anything else that goes wrong the cause is not known, so it is tried again just so: to count a run as
    ended whose fate is not known would have it run twice.
    """
    wait_s, said = FIRST_WAIT_S, ""
    while True:
        try:
            result = work()
            return await result if isinstance(result, Awaitable) else result
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != said:
                passing = isinstance(error, OSError) and error.errno in FULL_DISK
                log.warning("run-waits", run=whose, error=text, exc_info=not passing)
            said = text
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
