"""Waiting out what the machine has too little of for now: room on the disk, open files, memory, the store.

None of it says anything about a job, so none of it may end one, count as a try or end the scheduler.
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
#: What was begun again counts as going on after so many wall seconds.
STEADY_S = 1.0

LACKS = {
    errno.ENOSPC: DiskFullError.kind,
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EMFILE: "this process has too many open files",
    errno.ENFILE: "this machine has too many open files",
    errno.ENOMEM: "no memory is left",
    errno.EAGAIN: "no more processes or threads can be had",
}


@dataclass(frozen=True, slots=True)
class Lack:
    """What there is too little of: in a few words, and with the place and the mend."""

    kind: str
    detail: str


def lack(error: BaseException | None) -> Lack | None:
    """What there is too little of, if that is what an error comes from."""
    while error is not None:
        if isinstance(error, UnusableError):
            return Lack(error.kind, str(error))
        if isinstance(error, MemoryError):
            return Lack(LACKS[errno.ENOMEM], LACKS[errno.ENOMEM])
        if isinstance(error, OSError) and error.errno in LACKS:
            kind = LACKS[error.errno]
            return Lack(kind, f"{error.filename}: {kind}" if error.filename else kind)
        error = error.__cause__
    return None


class Patience:
    """Knows what is waited for, and says so when that begins and when it is over."""

    def __init__(self, tell: Callable[[str, str], None] = lambda _kind, _detail: None) -> None:
        """`tell` is given what is waited for, in a few words and in a line; twice "" when nothing is."""
        self._tell = tell
        self._lacks: dict[str, Lack] = {}

    def notes(self, who: str, error: BaseException) -> bool:
        """Whether an error that `who` ran into is to be waited out."""
        what = lack(error)
        if what is None:
            self.over(who)
        elif who not in self._lacks:
            self._lacks[who] = what
            if len(self._lacks) == 1:
                log.error("waits", error=what.detail, note="goes on by itself when this is mended")
                self._tell(what.kind, what.detail)
        return what is not None

    def over(self, who: str) -> None:
        """`who` goes on."""
        if self._lacks.pop(who, None) is not None and not self._lacks:
            log.info("goes-on")
            self._tell("", "")

    async def outlast(self, who: str, call: Callable[[], Awaitable[T]]) -> T:
        """What a call returns that changes all or nothing; it is made again until no shortage stops it."""
        result = await retry(call, _pauses(), partial(self._expect_shortage, who))
        self.over(who)
        return result

    async def go_on(self, who: str, begin: Callable[[], Awaitable[None]]) -> None:
        """Run what should never end; when a shortage stops it, it is begun again."""

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
