"""A home of its own, a command line to type on, and a scheduler's past to ask about."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from starburst.cli.main import run
from tests.cli.past import NOON, Past
from tests.kube_unit.server import FakeServer


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Answer]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("STARBURST_HOME", str(path))
    return path


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def cli(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Runs `starburst …` in this process."""
    handler = signal.getsignal(signal.SIGINT)

    def cli(*words: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "argv", ["starburst", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            run()
        return Answer(int(ended.value.code or 0), *capfd.readouterr())

    yield cli
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def past(home: Path) -> Iterator[Past]:
    """A scheduler whose clock stands still at noon."""
    with Past.begin(home / "starburst.db", NOON) as begun:
        yield begun


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """An API server in a thread of its own, as commands have loops of their own."""
    found, ready = list[FakeServer](), threading.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with FakeServer() as fake:
            found.append(fake)
            stop = asyncio.Event()
            fake_stop.append(lambda: loop.call_soon_threadsafe(stop.set))
            ready.set()
            await stop.wait()

    fake_stop = list[Callable[[], Any]]()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield found[0]
    finally:
        fake_stop[0]()
        thread.join()
        loop.close()
