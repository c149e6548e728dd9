"""Users of the HTTP API: requests go to its application in this loop, and may be lost on their way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI

from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.store.store import Store
from starburst.web.app import make_app, serve
from starburst.web.context import AppContext
from tests.storm.weather import Weather

T = TypeVar("T")


class LostError(Exception):
    """No answer came."""


class HttpClient:
    """One user's line to an API that has no tokens."""

    def __init__(self, home: Home, store: Store, weather: Weather) -> None:
        self._weather = weather
        self._context = AppContext(home, store)

    @cached_property
    def _app(self) -> FastAPI:
        app = api_of_process()
        serve(app, self._context, HttpConfig())
        return app

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        """The status and the answer.

        Raises:
            LostError: the request or its answer was lost.
        """
        if self._weather.strikes("http-cut-before", path):
            raise LostError
        text, parts, status = json.dumps(body).encode(), list[bytes](), 0
        arrived = False

        async def receive() -> dict[str, Any]:
            nonlocal arrived
            if arrived:  # the client waits, and says nothing more
                await asyncio.get_running_loop().create_future()
            arrived = True
            return {"type": "http.request", "body": text, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        await self._app(_scope(path, len(text)), receive, send)
        if self._weather.strikes("http-answer-lost", path):
            raise LostError
        return status, json.loads(b"".join(parts))


@cache
def api_of_process() -> FastAPI:
    """The API's application, which serves one run after another: making it takes as long as twenty requests.

    Its pages have a home without anything; no user of a run asks for them.
    """
    nowhere = Home(Path("nowhere"))
    with Store.open("sqlite://") as nothing:
        return make_app(AppContext(nowhere, nothing), HttpConfig())


async def inline(func: Callable[..., T], *args: Any, **_more: Any) -> T:
    """In place of a worker thread of anyio."""
    return func(*args)


def _scope(path: str, length: int) -> dict[str, Any]:
    headers = [(b"host", b"127.0.0.1:8585"), (b"content-type", b"application/json")]
    headers.append((b"content-length", str(length).encode()))
    where = {"path": path, "raw_path": path.encode(), "root_path": "", "query_string": b""}
    people = {"client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 8585), "scheme": "http"}
    kind = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST"}
    return {**kind, **where, **people, "headers": headers, "state": {"uid": 0}}
