"""Retries while a shortage of this machine lasts: disk room, open files, memory, a locked store.

A shortage is no failure of a job or a site: it ends no job, is not counted as a try, and does not end the
scheduler.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from starburst.aio import Backoff, retry
from starburst.store.errors import DiskFullError, UnusableError

log = structlog.get_logger()

T = TypeVar("T")

#: Pauses between tries, wall seconds.
FIRST_PAUSE_S = 0.25
LAST_PAUSE_S = 5.0
#: Wall seconds after which a restarted activity counts as recovered.
STEADY_S = 1.0

SHORTAGES = {
    errno.ENOSPC: DiskFullError.kind,
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EMFILE: "this process has too many open files",
    errno.ENFILE: "this machine has too many open files",
    errno.ENOMEM: "no memory is left",
    errno.EAGAIN: "no more processes or threads can be had",
}


@dataclass(frozen=True, slots=True)
class Shortage:
    """An exhausted resource: in a few words, and in one line with the file and the remedy if known."""

    kind: str
    detail: str


def shortage_of(error: BaseException | None) -> Shortage | None:
    """The shortage that caused an error; None if it has another cause."""
    while error is not None:
        if isinstance(error, UnusableError):
            return Shortage(error.kind, str(error))
        if isinstance(error, MemoryError):
            return Shortage(SHORTAGES[errno.ENOMEM], SHORTAGES[errno.ENOMEM])
        if isinstance(error, OSError) and error.errno in SHORTAGES:
            kind = SHORTAGES[error.errno]
            return Shortage(kind, f"{error.filename}: {kind}" if error.filename else kind)
        error = error.__cause__
    return None


class ShortageRetry:
    """Repeats calls that a shortage stops; reports when the first one begins and the last one ends."""

    def __init__(self, tell: Callable[[str, str], None] = lambda _kind, _detail: None) -> None:
        """`tell` is given the kind and the detail of a shortage; "" and "" when it is over."""
        self._tell = tell
        self._lacks: dict[str, Shortage] = {}

    def notes(self, who: str, error: BaseException) -> bool:
        """Whether an error of the activity `who` is a shortage; if so, `who` is recorded as waiting."""
        what = shortage_of(error)
        if what is None:
            self.over(who)
        elif who not in self._lacks:
            self._lacks[who] = what
            if len(self._lacks) == 1:
                log.error("waits", error=what.detail, note="goes on by itself when this is mended")
                self._tell(what.kind, what.detail)
        return what is not None

    def over(self, who: str) -> None:
        """Record that the activity `who` no longer waits."""
        if self._lacks.pop(who, None) is not None and not self._lacks:
            log.info("goes-on")
            self._tell("", "")

    async def outlast(self, who: str, call: Callable[[], Awaitable[T]]) -> T:
        """The result of an atomic call, repeated while a shortage stops it."""
        result = await retry(call, _pauses(), partial(self._expect_shortage, who))
        self.over(who)
        return result

    async def go_on(self, who: str, begin: Callable[[], Awaitable[None]]) -> None:
        """Run an endless activity; it is restarted when a shortage stops it."""

        async def attempt() -> None:
            steady = asyncio.get_running_loop().call_later(STEADY_S, self.over, who)
            try:
                await begin()
            finally:
                steady.cancel()

        await retry(attempt, _pauses(), partial(self._expect_shortage, who))

    def _expect_shortage(self, who: str, error: Exception) -> None:
        if not self.notes(who, error):
            raise error


def _pauses() -> Backoff:
    return Backoff(FIRST_PAUSE_S, LAST_PAUSE_S)
