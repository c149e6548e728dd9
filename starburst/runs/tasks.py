"""Background tasks by key, whose failures somebody hears of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any


class TaskSet:
    """At most one task per key at a time."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._failed = asyncio.Event()
        self._error: BaseException | None = None

    def ensure(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """The task of this key; begins `work` when there is none."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(work())
            task.add_done_callback(partial(self._done, key))
        return task

    async def until_failure(self) -> None:
        """Wait for a task to fail, and raise what it raised."""
        await self._failed.wait()
        self._failed.clear()
        if self._error is not None:
            raise self._error

    async def cancel(self) -> None:
        """Cancel all and wait until they are gone."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, key: Hashable, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if not task.cancelled() and task.exception() is not None:
            self._error = task.exception()
            self._failed.set()
