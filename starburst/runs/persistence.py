"""Calls on the disk of a run that are repeated until they succeed: shortages pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import structlog

from starburst.aio import Backoff, retry
from starburst.runs.supervisor.files import FULL_DISK

#: Seconds between tries: at first, at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0

T = TypeVar("T")

log = structlog.get_logger()


@overload
async def until_done(work: Callable[[], Awaitable[T]], whose: object = ...) -> T: ...
@overload
async def until_done(work: Callable[[], T], whose: object = ...) -> T: ...
async def until_done(work: Callable[[], Any], whose: object = None) -> Any:
    """The result of `work`, however often it takes: a full disk, or a shortage of open files, passes.

    Any other error is retried in the same way, because its cause is unknown: a run that counts as ended while
    its fate is unknown would run twice. Each new error is logged once.
    """
    last = ""

    def log_new(error: Exception) -> None:
        nonlocal last
        text = f"{type(error).__name__}: {error}"
        if text != last:
            passing = isinstance(error, OSError) and error.errno in FULL_DISK
            log.warning("run-waits", run=whose, error=text, exc_info=not passing)
        last = text

    return await retry(work, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), log_new)
