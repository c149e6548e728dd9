"""A feed of new decision rows for event streams: one poll of the store serves all streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple

import structlog
from anyio import move_on_after
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from starburst.aio import TaskSet
from starburst.app.jobs.job_keys import Keys, decision_keys
from starburst.app.jobs.visibility import as_seen
from starburst.store.errors import StoreError
from starburst.store.listings import pages
from starburst.store.listings.pages import QueueScope
from starburst.store.store import Store

log = structlog.get_logger()

#: Wall seconds between two polls.
POLL_S = 0.3


class FeedBatch(NamedTuple):
    """Rows as the text of server-sent events, and the sequence number up to which the log was read."""

    text: str
    seq: int
    #: Whether more rows may be available at once.
    more: bool


def as_events(rows: Iterable[Keys]) -> str:
    """Rows as server-sent events whose ids are the sequence numbers."""
    return "".join(
        f"id: {row['seq']}\nevent: decision\ndata: {json.dumps(row, ensure_ascii=False)}\n\n" for row in rows
    )


class DecisionFeed:
    """Serves the streams of one event loop. It polls while at least one stream is open (`with feed:`).

    Streams that ask for the same rows share one query.
    """

    def __init__(self, store: Store, closing: Callable[[], bool]) -> None:
        """`closing`: whether the server is about to stop; it wakes the streams up, too."""
        self._store = store
        self._closing = closing
        self._watching = 0
        self._polling: asyncio.Task[None] | None = None
        #: The last known sequence number, and the event that is set when it changes.
        self._head = 0
        self._changed = asyncio.Event()
        #: The poll, and running queries by queues, start and limit.
        self._tasks = TaskSet()
        self._polls = count()

    def __enter__(self) -> DecisionFeed:
        """Register a stream."""
        self._watching += 1
        if self._polling is None:
            self._polling = self._tasks.ensure(("poll", next(self._polls)), self._poll)
        return self

    def __exit__(self, *_: object) -> None:
        self._watching -= 1
        if not self._watching and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def after(self, queues: QueueScope, seq: int, limit: int) -> FeedBatch:
        """The first `limit` rows after `seq` about jobs of these queues."""
        key = (None if queues is None else tuple(queues), seq, limit)
        look = self._tasks.ensure(key, lambda: run_in_threadpool(self._look, *key))
        return await asyncio.shield(look)  # one cancelled stream does not cancel the query of the others

    async def beyond(self, seq: int, limit_s: float) -> None:
        """Wait until a row after `seq` may exist, at most `limit_s` wall seconds."""
        if self._head <= seq:
            with move_on_after(limit_s):
                await self._changed.wait()

    def _look(self, queues: QueueScope, seq: int, limit: int) -> FeedBatch:
        rows, end = pages.decisions(self._store, queues, after_seq=seq, limit=limit)
        shown = as_seen(self._store, queues, [decision_keys(row) for row in rows])
        return FeedBatch(as_events(shown), end, len(rows) == limit)

    async def _poll(self) -> None:
        while True:
            head = self._head
            try:
                self._head = await run_in_threadpool(pages.head, self._store)
            except (
                SQLAlchemyError,
                StoreError,
            ) as error:  # each stream gets the same error from its own query
                log.warning("news-failed", error=str(error))
                self._notify()
            if self._head != head or self._closing():
                self._notify()
            await asyncio.sleep(POLL_S)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
