"""The decision log as server-sent events: nothing twice, nothing lost, nothing of others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from starburst.app.config.http import HttpConfig
from starburst.store import tokens
from starburst.store.tokens import Role
from starburst.web.app import make_app
from starburst.web.auth import Principal
from starburst.web.context import AppContext
from starburst.web.dependencies import RequestContext
from starburst.web.routes import streams
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving
from tests.cli.past import Past
from tests.web.conftest import API, Time
from tests.web.test_api import write

Make = Callable[..., str]


@pytest.fixture
def server(app_context: AppContext, wall: Time) -> Iterator[str]:
    wall.now = time.time()
    settings = HttpConfig(port=0)
    with listening(settings) as sock, serving(app_context, settings, sock) as url:
        yield url + API


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def rows(answer: httpx.Response, count: int) -> list[dict[str, Any]]:
    """The first rows of a watch; each one's id is its number."""
    found: list[dict[str, Any]] = []
    lines = answer.iter_lines()
    while len(found) < count:
        name, _, value = next(lines).partition(": ")
        if name == "id":
            seq = int(value)
        elif name == "data":
            found.append(json.loads(value))
            assert found[-1]["seq"] == seq
    return found


def test_rows_after_one_are_sent_by_either_way_of_saying_so(server: str) -> None:
    log = httpx.get(f"{server}/events").json()
    with httpx.stream("GET", f"{server}/watch?after=4") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert rows(answer, 5) == log[4:9]
    with httpx.stream("GET", f"{server}/watch?after=1", headers={"Last-Event-ID": "6"}) as answer:
        assert rows(answer, 2) == log[6:8]
    with httpx.stream("GET", f"{server}/watch?after=7", headers={"Last-Event-ID": "what"}) as answer:
        assert rows(answer, 1) == log[7:8]


def test_a_long_log_comes_whole(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "ROWS", 3)
    log = httpx.get(f"{server}/events").json()
    with httpx.stream("GET", f"{server}/watch?after=0") as answer:
        assert rows(answer, len(log)) == log


def test_a_token_for_a_queue_is_told_of_its_jobs_and_goes_on_past_others(
    server: str, token: Make, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "QUIET_S", 0.0)
    mine = bearer(token("viewer", "papers"))
    with httpx.stream("GET", f"{server}/watch?after=0", headers=mine) as answer:
        found = rows(answer, 3)
        assert {row["subject"] for row in found} == {"bad-22222"}
        # Others' rows are not sent, but where to go on from is behind them.
        end = httpx.get(f"{server}/summary", headers=mine).json()["last_seq"]
        assert end > found[-1]["seq"]
    with httpx.stream("GET", f"{server}/watch?after=0", headers=mine) as answer:
        ids = (int(line[4:]) for line in answer.iter_lines() if line.startswith("id: "))
        assert next(seq for seq in ids if seq >= end) == end


def test_streams_end_when_their_token_does(
    server: str, token: Make, app_context: AppContext, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "QUIET_S", 0.0)
    write(home, "train-44444", 0, "one\n")
    token("admin")
    headers = bearer(token("viewer"))
    log = f"{server}/jobs/train/logs?follow=true"
    with (
        httpx.stream("GET", f"{server}/watch", headers=headers) as watch,
        httpx.stream("GET", log, headers=headers) as text,
    ):
        pieces = text.iter_text()
        assert next(pieces) == "one\n"
        assert next(lines := watch.iter_lines()).startswith("id: ")
        tokens.revoke(app_context.store, "viewer")
        assert "".join(pieces) == ""
        assert all(line == "" or line.startswith("id: ") for line in lines)
    with httpx.stream("GET", f"{server}/watch", headers=headers) as watch:
        assert watch.status_code == 401


def test_a_watch_that_is_behind_ends_with_its_token_too(
    app_context: AppContext, token: Make, wall: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "QUIET_S", 0.0)
    monkeypatch.setattr(streams, "ROWS", 2)
    wall.now = time.time()
    secret = token("viewer")
    services = make_app(app_context, HttpConfig()).state.services
    context = RequestContext(services, Principal("token viewer", Role.VIEWER, name="viewer", secret=secret))

    async def told() -> list[str]:
        feed = streams._decisions(context, 0)
        found = [await anext(feed), await anext(feed)]
        tokens.revoke(app_context.store, "viewer")
        return found + [text async for text in feed]

    position, *rest = asyncio.run(told())
    assert position == "id: 0\n\n"
    assert "".join(rest).count("event: decision") == 2


def test_a_reader_that_goes_away_gives_its_stream_back(app_context: AppContext) -> None:
    settings = HttpConfig(port=0, streams=1)
    with listening(settings) as sock, serving(app_context, settings, sock) as url:
        with httpx.stream("GET", f"{url}{API}/watch") as answer:
            lines = answer.iter_lines()  # the answer ends when this goes
            assert next(lines).startswith("id: ")
            assert httpx.get(f"{url}{API}/jobs/wait/logs?follow=true").status_code == 429
        give_up = time.monotonic() + 10
        while (again := httpx.get(f"{url}{API}/jobs/wait/logs").status_code) == 429:
            assert time.monotonic() < give_up
            time.sleep(0.02)
        assert again == 204
