"""Submissions: one body per principal is read at a time, and reading stops when the client disconnects."""

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

from starburst.aio import running
from starburst.app.jobs.submitting import ReadManifests
from starburst.app.reading.sources import ManifestText
from starburst.app.reading.workers import shared
from starburst.web.dependencies import SubmitterContext
from starburst.web.errors import HttpError
from starburst.web.routes.bodies import sources

#: Waiting submissions per principal; the body of each is in memory.
MOST_WAITING = 16
#: Wall seconds between two checks of the connection.
LOOK_S = 0.25


class SubmissionLimits:
    """One lock per principal, and the number of its submissions."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._there = Counter[str]()

    @asynccontextmanager
    async def of(self, principal: str) -> AsyncIterator[None]:
        """Hold the lock of a principal.

        Raises:
            HttpError: 429, too many submissions of the principal wait already.
        """
        if self._there[principal] > MOST_WAITING:
            raise HttpError(
                429,
                f"{MOST_WAITING} submissions of yours wait to be read; send fewer at a time",
                {"Retry-After": "2"},
            )
        self._there[principal] += 1
        try:
            async with self._locks.setdefault(principal, asyncio.Lock()):
                yield
        finally:
            self._there[principal] -= 1
            if not self._there[principal]:
                del self._there[principal], self._locks[principal]


@dataclass(frozen=True, slots=True)
class SubmissionBody:
    """The manifests of a submission, and a reader that stops when the client disconnects."""

    sources: list[ManifestText]
    read: ReadManifests


async def submission_body(
    request: Request, context: SubmitterContext, texts: Annotated[list[ManifestText], Depends(sources)]
) -> AsyncIterator[SubmissionBody]:
    """The dependency of a submitting route: the manifests of its request, under the principal's lock."""
    submission_limits: SubmissionLimits = request.app.state.submission_limits
    async with submission_limits.of(context.principal.key):
        gone = Event()
        async with running(_watch(request, gone), "watch of a client"):
            yield SubmissionBody(texts, partial(shared().read, gone=gone.is_set))


async def _watch(request: Request, gone: Event) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(LOOK_S)
    gone.set()
