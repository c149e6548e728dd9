"""Keys to be worked on, as in client-go's workqueue: each once, by one worker at a time."""

from __future__ import annotations

import asyncio


class WorkQueue:
    """A queue of keys. One that is added while it is worked on comes again when that is done."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._busy: set[str] = set()
        self._filled = asyncio.Event()

    def add(self, key: str) -> None:
        """To be worked on; a key that waits keeps its place."""
        self._waiting[key] = None
        self._filled.set()

    async def take(self) -> str:
        """The key that has waited longest and that nobody works on; to be given back by `done`."""
        while True:
            key = next((key for key in self._waiting if key not in self._busy), None)
            if key is not None:
                del self._waiting[key]
                self._busy.add(key)
                return key
            self._filled.clear()
            await self._filled.wait()

    def done(self, key: str) -> None:
        """The work on this key is over."""
        self._busy.discard(key)
        if key in self._waiting:
            self._filled.set()
