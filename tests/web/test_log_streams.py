"""A followed log over connections that break: each byte once, wherever they break."""

from __future__ import annotations

import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from starburst import Client
from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.app.errors import UserError
from starburst.app.logs import job_log
from starburst.app.logs.sites import LogPosition
from starburst.client import RefusedError, UnreachableError
from starburst.client.sse import ServerEvent, events
from starburst.runs.attempt_dir import log_path
from starburst.store import tokens
from starburst.web.context import AppContext
from starburst.web.routes import streams
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving
from tests.cli.past import Past
from tests.web.conftest import Time

JOB = "train-44444"
SETTINGS = HttpConfig(port=0, requests_per_second=1e6)
EVENTS = {"Accept": "text/event-stream"}
GIVE_UP_S = 20.0


class Cutter:
    """A line to a server that is cut after so many bytes of each answer, in the middle of whatever comes."""

    def __init__(self, target: int, budget: Callable[[], int]) -> None:
        self._target = target
        self._budget = budget
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Cutter:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                for pump in (self._ask, self._answer):
                    threading.Thread(target=pump, args=(near, far), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(65_536):
                far.sendall(data)
        self._end(near, far)

    def _answer(self, near: socket.socket, far: socket.socket) -> None:
        left = self._budget()
        with suppress(OSError):
            while left and (data := far.recv(left)):
                near.sendall(data)
                left -= len(data)
        self.cuts += not left
        self._end(near, far)

    def _end(self, *lines: socket.socket) -> None:
        for line in lines:
            with suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                line.shutdown(socket.SHUT_RDWR)
            line.close()


class Follower:
    """Somebody who follows a log in a thread of its own."""

    def __init__(self, client: Client, job: str = JOB) -> None:
        self.text = ""
        self.notes: list[str] = []
        self._client = client
        self._job = job
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for piece in self._client.logs(self._job, follow=True, note=self.notes.append):
            with self._news:
                self.text += piece
                self._news.notify()

    def until(self, text: str) -> None:
        """Wait until this has come."""
        with self._news:
            assert self._news.wait_for(lambda: text in self.text, GIVE_UP_S), self.text[-200:]

    def end(self) -> str:
        """All of it, once it has ended."""
        self._thread.join(GIVE_UP_S)
        assert not self._thread.is_alive()
        return self.text


def log_of(home: Path, rank: int = 0, attempt: int = 1) -> Path:
    path = log_path(Home(home).cluster, JOB, attempt, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def add(path: Path, text: str) -> None:
    with path.open("a", newline="") as log:
        log.write(text)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "POLL_S", 0.01)
    monkeypatch.setattr(streams, "POLL_S", 0.01)


@pytest.fixture
def server(app_context: AppContext) -> Iterator[int]:
    """The port of one."""
    with listening(SETTINGS) as sock, serving(app_context, SETTINGS, sock):
        yield sock.getsockname()[1]


def events_of(port: int, **asked: Any) -> list[ServerEvent]:
    """All that one answer has."""
    url = f"http://127.0.0.1:{port}/api/v1/jobs/{JOB}/logs"
    return list(events([httpx.get(url, headers={**EVENTS, **asked.pop("headers", {})}, params=asked).text]))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_byte_is_lost_or_doubled_however_often_the_line_is_cut(
    server: int, home: Path, past: Past, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(job_log, "BLOCK", 3)
    draw, budget = random.Random(seed), random.Random(seed)
    signs = "ab \t\r\x0b\x85\u2028é😀:"
    wrote = dict.fromkeys((0, 1), "")
    for rank in wrote:
        add(log_of(home, rank), "")
    with (
        Cutter(server, lambda: budget.choice([1, 150, 400, budget.randrange(900, 2000)])) as line,
        Client(line.url, sleep=lambda _: time.sleep(0.001)) as client,
    ):
        client._connection.tries = 1000
        follower = Follower(client)
        for n in range(25):
            for rank in wrote:
                text = f"{n}.{rank} {''.join(draw.choices(signs, k=draw.randrange(60)))}"
                add(log_of(home, rank), text)  # half a line first
                add(log_of(home, rank), "\n")
                wrote[rank] += text + "\n"
            if n % 5 == 0:
                follower.until(f"{n}.{draw.choice([0, 1])} ")
        past.end(JOB)
        text = follower.end()
    assert line.cuts >= 2
    lines = re.findall(r"\[([01])\] ([^\r\n]*(?:\r\n|\r|\n))", text)  # a progress bar's end with \r
    for rank, whole in wrote.items():
        assert "".join(line for mark, line in lines if mark == str(rank)) == whole


def test_it_goes_on_when_the_server_was_started_again(
    app_context: AppContext, home: Path, past: Past
) -> None:
    log = log_of(home)
    add(log, "one\n")
    with listening(SETTINGS) as sock, serving(app_context, SETTINGS, sock) as url:
        settings = HttpConfig(port=sock.getsockname()[1])
        client = Client(url, sleep=lambda _: time.sleep(0.005))
        follower = Follower(client)
        follower.until("one\n")
    add(log, "two\nthr")
    with client:
        with listening(settings) as sock, serving(app_context, settings, sock):
            follower.until("two\n")
        add(log, "ee\n")
        past.end(JOB)
        with listening(settings) as sock, serving(app_context, settings, sock):
            assert follower.end() == "one\ntwo\nthree\n"
    assert all("does not answer" in note for note in follower.notes)
    assert len(follower.notes) <= 2, "once for each time"


def test_runs_that_came_and_went_meanwhile_are_not_skipped(server: int, home: Path, past: Past) -> None:
    """Last seen was the first run; it wrote on, a second one came and went, a third one runs."""
    add(log_of(home), "first\n")
    url = f"http://127.0.0.1:{server}/api/v1/jobs/{JOB}/logs?follow=true"
    with httpx.stream("GET", url, headers=EVENTS) as answer:
        stream = events(answer.iter_text())
        seen = next(event for event in stream if event.data)
        answer.close()
    assert (seen.name, seen.id) == ("log", "1&1.0=6")
    add(log_of(home), "its end, without a line's")
    add(log_of(home, attempt=2), "second\n")
    add(log_of(home, attempt=3), "third\n")
    past.end(JOB)
    rest = events_of(server, follow="true", headers={"Last-Event-ID": seen.id})
    text = "".join(event.data for event in rest if event.name == "log")
    assert text == '{"text": "its end, without a line\'ssecond\\nthird\\n"}'
    assert rest[-1] == ServerEvent(name="end", data='{"found": true}')
    assert "".join(Client(f"http://127.0.0.1:{server}").logs(JOB)) == "third\n", "who comes new sees the last"


def test_who_waits_for_a_first_run_is_told_where_to_go_on_from(server: int, home: Path, past: Past) -> None:
    url = f"http://127.0.0.1:{server}/api/v1/jobs/wait-55555/logs?follow=true"
    with httpx.stream("GET", url, headers=EVENTS) as answer, closing(events(answer.iter_text())) as stream:
        assert next(stream) == ServerEvent(id="0")


def test_behind_the_end_there_is_nothing_more(server: int, home: Path, past: Past) -> None:
    add(log_of(home), "all\nof it")
    past.end(JOB)
    *_, last, end = events_of(server, follow="true")
    assert (last.data, end.name) == ('{"text": "all\\nof it"}', "end")
    (again,) = events_of(server, follow="true", headers={"Last-Event-ID": last.id})
    assert again == ServerEvent(name="end", data='{"found": true}')
    (nothing,) = list(
        events([httpx.get(f"http://127.0.0.1:{server}/api/v1/jobs/wait/logs", headers=EVENTS).text])
    )
    assert nothing == ServerEvent(name="end", data='{"found": false}')


@pytest.mark.parametrize("text", ["x", "1&", "1&1.0=-1", "1&1.0=1x", "²", "1&a=1&", "1" * 10, "1&a b=1"])
def test_what_is_no_position_is_refused(server: int, text: str) -> None:
    url = f"http://127.0.0.1:{server}/api/v1/jobs/{JOB}/logs"
    answer = httpx.get(url, headers={**EVENTS, "Last-Event-ID": text.encode()})  # type: ignore[dict-item]
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Last-Event-ID: ")


def test_a_position_is_read_as_it_was_written() -> None:
    for position in (
        LogPosition(),
        LogPosition(0),
        LogPosition(3, {"3.0": 5, "3.11": 7, "train-3-x2b4c/1": 70}),
    ):
        assert LogPosition.parse(str(position)) == position


def test_a_follower_whose_token_was_taken_back_is_told_so(
    *,
    server: int,
    home: Path,
    app_context: AppContext,
    wall: Time,
    token: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "QUIET_S", 0.0)
    wall.now = time.time()
    add(log_of(home), "one\n")
    token("admin")
    with Client(f"http://127.0.0.1:{server}", token("viewer")) as client:
        pieces = client.logs(JOB, follow=True)
        assert next(pieces) == "one\n"
        tokens.revoke(app_context.store, "viewer")
        with pytest.raises(RefusedError, match="this token is not known"):
            next(pieces)


def test_notes_and_what_goes_wrong_at_last_come_through(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*given: Any, note: Callable[[str], None], position: LogPosition, **_: object) -> bool:
        write = given[-1]
        position.since = 1
        note("it is away; this was kept")
        await write("kept\n")
        raise UserError("it is away; what it wrote is not whole")

    monkeypatch.setattr(streams, "read_log", read)
    notes: list[str] = []
    with Client(f"http://127.0.0.1:{server}") as client:
        pieces = client.logs(JOB, note=notes.append)
        assert next(pieces) == "kept\n"
        with pytest.raises(RefusedError, match="what it wrote is not whole"):
            next(pieces)
    assert notes == ["it is away; this was kept"]


def test_a_server_that_never_was_there_is_not_waited_for_and_one_that_goes_away_only_by_followers(
    app_context: AppContext, home: Path
) -> None:
    add(log_of(home), "one\n")
    slept: list[float] = []
    with listening(SETTINGS) as sock, serving(app_context, SETTINGS, sock) as url:
        client = Client(url, sleep=slept.append)
        assert "".join(client.logs(JOB)) == "one\n"
    with client:
        for follow in (True, False):
            slept.clear()
            with pytest.raises(UnreachableError, match="does not answer"):
                list(client.logs(JOB, follow=follow))
            assert len(slept) == 3
