"""Submissions of one caller are read one at a time, and no longer than somebody waits for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Annotated

from fastapi import Depends, Request

from starburst.app.jobs.submitting import Read
from starburst.app.reading.sources import Source
from starburst.app.reading.workers import shared
from starburst.web.dependencies import Submitter
from starburst.web.errors import RefusedError
from starburst.web.routes.bodies import sources

#: Submissions of one caller that wait for their turn; each keeps its body in memory.
MOST_WAITING = 16
#: Wall seconds between looks whether the client is still there.
LOOK_S = 0.25


class Turns:
    """Who is being read, and who waits."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._there = Counter[str]()

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Wait for the caller's turn, and have it.

        Raises:
            RefusedError: too many of this caller wait already.
        """
        if self._there[caller] > MOST_WAITING:
            raise RefusedError(
                429,
                f"{MOST_WAITING} submissions of yours wait to be read; send fewer at a time",
                {"Retry-After": "2"},
            )
        self._there[caller] += 1
        try:
            async with self._locks.setdefault(caller, asyncio.Lock()):
                yield
        finally:
            self._there[caller] -= 1
            if not self._there[caller]:
                del self._there[caller], self._locks[caller]


@dataclass(frozen=True, slots=True)
class Handed:
    """What a client sends, and the way of reading it that ends when the client goes away."""

    sources: list[Source]
    read: Read


async def handed_in(
    request: Request, visit: Submitter, texts: Annotated[list[Source], Depends(sources)]
) -> AsyncIterator[Handed]:
    """The manifests of a request, when it is its caller's turn."""
    turns: Turns = request.app.state.turns
    async with turns.of(visit.caller.key):
        gone = Event()
        watching = asyncio.create_task(_watch(request, gone))
        try:
            yield Handed(texts, partial(shared().read, gone=gone.is_set))
        finally:
            watching.cancel()


async def _watch(request: Request, gone: Event) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(LOOK_S)
    gone.set()
