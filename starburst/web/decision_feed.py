"""New rows of the decision log, looked for once for all who watch it."""

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
from starburst.app.jobs.serializers import Keys, decision_keys
from starburst.app.jobs.visibility import as_seen
from starburst.store import pages
from starburst.store.errors import StoreError
from starburst.store.pages import Queues
from starburst.store.store import Store

log = structlog.get_logger()

#: Wall seconds between looks.
POLL_S = 0.3


class FeedBatch(NamedTuple):
    """Rows as text, and the row up to which the log was looked at."""

    text: str
    seq: int
    #: Whether there may be more at once.
    more: bool


def as_events(rows: Iterable[Keys]) -> str:
    """Server-sent events whose ids are the rows'."""
    return "".join(
        f"id: {row['seq']}\nevent: decision\ndata: {json.dumps(row, ensure_ascii=False)}\n\n" for row in rows
    )


class DecisionFeed:
    """For streams of one event loop: however many watch, the store is asked as if a few did."""

    def __init__(self, store: Store, closing: Callable[[], bool]) -> None:
        """`closing`: whether the server is about to end, which is news, too."""
        self._store = store
        self._closing = closing
        self._watching = 0
        self._polling: asyncio.Task[None] | None = None
        #: The last row known of, and what is set when there is another.
        self._head = 0
        self._changed = asyncio.Event()
        #: The poll, and looks by what they look for: callers that want the same share one look.
        self._tasks = TaskSet()
        self._polls = count()

    def __enter__(self) -> DecisionFeed:
        """Begin to watch."""
        self._watching += 1
        if self._polling is None:
            self._polling = self._tasks.ensure(("poll", next(self._polls)), self._poll)
        return self

    def __exit__(self, *_: object) -> None:
        self._watching -= 1
        if not self._watching and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def after(self, queues: Queues, seq: int, limit: int) -> FeedBatch:
        """The first rows after this one about jobs of these queues."""
        key = (None if queues is None else tuple(queues), seq, limit)
        look = self._tasks.ensure(key, lambda: run_in_threadpool(self._look, *key))
        return await asyncio.shield(look)  # who goes away takes it from nobody else

    async def beyond(self, seq: int, limit_s: float) -> None:
        """Wait until there may be a row after this one, but not for longer; wall seconds."""
        if self._head <= seq:
            with move_on_after(limit_s):
                await self._changed.wait()

    def _look(self, queues: Queues, seq: int, limit: int) -> FeedBatch:
        rows, end = pages.decisions(self._store, queues, after_seq=seq, limit=limit)
        shown = as_seen(self._store, queues, [decision_keys(row) for row in rows])
        return FeedBatch(as_events(shown), end, len(rows) == limit)

    async def _poll(self) -> None:
        while True:
            head = self._head
            try:
                self._head = await run_in_threadpool(pages.head, self._store)
            except (SQLAlchemyError, StoreError) as error:  # streams find out for themselves, and end
                log.warning("news-failed", error=str(error))
                self._notify()
            if self._head != head or self._closing():
                self._notify()
            await asyncio.sleep(POLL_S)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
