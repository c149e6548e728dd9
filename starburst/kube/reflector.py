"""Reflector: a local copy of all objects of one kind, kept up to date by a watch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.resources import Object, Resource

log = structlog.get_logger()

T = TypeVar("T")

#: Wall seconds between tries when the server does not answer; each is drawn between half of it and all. Only
#: an event or a bookmark sets them back: if a list did, a watch that always fails would list without end.
FIRST_PAUSE_S = 0.25
LAST_PAUSE_S = 20.0
#: The same for an optional kind of object that this server does not serve (404).
UNSERVED_PAUSE_S = 600.0
#: How long one watch lasts, drawn anew each time, so that clients do not all come back at once. A quiet
#: stream ends with a bookmark, before it is taken for dead (`api.SILENCE_S`).
WATCH_S = (90, 140)


@dataclass(frozen=True, slots=True)
class Handler(Generic[T]):
    """Callbacks of a reflector."""

    #: (old, new): an object is new (old is None), another than it was, or gone (new is None).
    changed: Callable[[T | None, T | None], None]
    #: Every object of now has been passed to `changed`; called again after each new list.
    synced: Callable[[], None]
    #: The server refuses to list (403), or does not serve the kind (404); called again after each try.
    refused: Callable[[ApiError], None] = lambda _: None


@dataclass(slots=True)
class _Entry(Generic[T]):
    uid: str
    item: T


class Reflector(Generic[T]):
    """List, then watch; list again when the server has compacted the version that was reached (410).

    `read` makes a small value of an object, None of one that does not matter. An object that it fails on
    keeps the value it had. Values never go back in time: events and lists with an older resource version than
    the newest one seen are ignored, so a lagging replica of the API server cannot undo what is known.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        read: Callable[[Object], T | None],
        handler: Handler[T],
        *,
        namespace: str = "",
        selector: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: random.Random | None = None,
    ) -> None:
        self._api = api
        self._resource = resource
        self._read = read
        self._handler = handler
        self._namespace = namespace
        self._selector = selector
        self._sleep = sleep
        self._draw = draw or random.Random()
        self._entries: dict[str, _Entry[T]] = {}
        #: Where to go on watching; "" to list first.
        self._version = ""
        #: The newest resource version seen; unlike `_version` it survives an expired watch (410).
        self._newest = 0
        self._pause_s = FIRST_PAUSE_S

    def __iter__(self) -> Iterator[T]:
        return (entry.item for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            asked_s = 0.0
            try:
                if not self._version:
                    await self._list()
                if await self._watch():  # the stream ran its time
                    await self._sleep(self._draw.uniform(0, FIRST_PAUSE_S))
                    continue
                log.warning("watch-empty", of=self._resource.plural)
            except ApiUnreachableError as error:
                log.warning("watch-broken", of=self._resource.plural, error=str(error))
            except ApiError as error:
                asked_s = error.retry_after_s
                if error.status in (403, 404) and not self._version:
                    self._handler.refused(error)
                if error.status == 410:
                    self._version = ""
                    log.info("watch-expired", of=self._resource.plural)
                elif error.status == 404 and self._resource.optional:
                    log.info("not-served", of=self._resource.plural)
                    asked_s = UNSERVED_PAUSE_S
                else:
                    log.warning("watch-broken", of=self._resource.plural, error=str(error))
            await self._sleep(max(asked_s, self._draw.uniform(self._pause_s / 2, self._pause_s)))
            self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)

    async def _list(self) -> None:
        found: dict[str, _Entry[T]] = {}
        version = ""
        async for page, listed in self._api.pages(self._resource, self._namespace, self._selector):
            version = version or listed
            for item in page:
                key = _key(item)
                entry = self._entry(item, self._entries.get(key))
                if entry is not None:
                    found[key] = entry
        if _number(version) < self._newest:
            raise ApiUnreachableError(
                f"a list of {self._resource.plural} from before what is known ({version} < {self._newest}); "
                "if the cluster was restored from a backup, restart this process"
            )
        for key in [key for key in self._entries if key not in found]:
            self._drop(key)
        for key, entry in found.items():
            self._put(key, entry)
        self._version, self._newest = version, _number(version)
        self._handler.synced()

    async def _watch(self) -> bool:
        """Whether any event came before the stream ended; if none ever does, the pauses grow."""
        stream = self._api.watch(
            self._resource,
            self._version,
            namespace=self._namespace,
            selector=self._selector,
            last_s=self._draw.randint(*WATCH_S),
        )
        told = False
        async with aclosing(stream) as events:
            async for event in events:
                told = True
                self._pause_s = FIRST_PAUSE_S
                self._take(event["type"], event["object"])
        return told

    def _take(self, kind: str, item: Object) -> None:
        version = item["metadata"]["resourceVersion"]
        if _number(version) < self._newest:
            return
        if kind != "BOOKMARK":
            key = _key(item)
            entry = None if kind == "DELETED" else self._entry(item, self._entries.get(key))
            if entry is None:
                self._drop(key)
            else:
                self._put(key, entry)
        self._version, self._newest = version, _number(version)

    def _entry(self, item: Object, known: _Entry[T] | None) -> _Entry[T] | None:
        metadata = item["metadata"]
        try:
            value = self._read(item)
        except (ValueError, TypeError, LookupError, AttributeError):
            log.exception("unreadable", of=self._resource.plural, key=_key(item))
            return known
        if value is None:
            return None
        if known is not None and known.uid == metadata["uid"] and known.item == value:
            return known  # nothing that matters here has changed
        return _Entry(metadata["uid"], value)

    def _put(self, key: str, entry: _Entry[T]) -> None:
        known = self._entries.get(key)
        if known is entry:
            return
        if known is not None and known.uid != entry.uid:
            self._drop(key)  # deleted and made anew under its name
            known = None
        self._entries[key] = entry
        self._handler.changed(None if known is None else known.item, entry.item)

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._handler.changed(entry.item, None)


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _number(version: str) -> int:
    """Resource versions of one kind grow with time (KEP-5504 made that official)."""
    return int(version or 0)
