"""The open port: whoever connects, slowly, often, half or from another account, is in nobody else's way."""
# ruff: noqa: F401, F811 - fixtures

from __future__ import annotations

import io
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
import structlog
import uvicorn
from starlette.types import Receive, Scope, Send

from starburst.app.config.http import HttpConfig
from starburst.log import set_up_log
from starburst.web.context import AppContext, SchedulerHeartbeat
from starburst.web.serving import connections
from starburst.web.serving.connections import PHASE_LIMIT_S, ConnectionPhase, ConnectionRegistry
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving
from tests.web.conftest import API, Ask, app_context, ask, clock, home, morning, settings, token, wall

Make = Callable[..., str]
PATIENCE_S = 60.0
#: An account that is nobody's.
STRANGER = 5001
ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@contextmanager
def served(app_context: AppContext, **settings: object) -> Iterator[tuple[str, int]]:
    """An API of these settings: where it is."""
    config = HttpConfig(port=0, **settings)  # type: ignore[arg-type]
    with listening(config) as sock:
        assert sock is not None
        with serving(app_context, config, sock):
            yield sock.getsockname()[:2]


def connect(where: tuple[str, int]) -> socket.socket:
    return socket.create_connection(where, timeout=PATIENCE_S)


def rest(sock: socket.socket) -> bytes:
    """What comes until the other end closes."""
    said = b""
    with suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            said += piece
    return said


def short(monkeypatch: pytest.MonkeyPatch, phase: ConnectionPhase) -> None:
    """One limit that is short; the others are minutes."""
    for each in (ConnectionPhase.HEADERS, ConnectionPhase.BODY, ConnectionPhase.REST, ConnectionPhase.IDLE):
        monkeypatch.setitem(PHASE_LIMIT_S, each, 0.3 if each is phase else 300.0)


class TestSlow:
    def test_headers_that_do_not_end_are_waited_for_until_their_deadline(
        self, app_context: AppContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        short(monkeypatch, ConnectionPhase.HEADERS)
        with served(app_context) as where, connect(where) as slow, connect(where) as silent:
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localh")
            assert rest(slow).startswith(b"HTTP/1.1 408 ")
            assert rest(silent) == b""

    def test_a_trickle_wins_no_time(self, app_context: AppContext, monkeypatch: pytest.MonkeyPatch) -> None:
        short(monkeypatch, ConnectionPhase.HEADERS)
        with served(app_context) as where, connect(where) as slow:
            began = time.monotonic()
            slow.settimeout(0.02)
            slow.sendall(b"GET /healthz HTTP/1.1\r\n")
            with suppress(ConnectionError):
                while time.monotonic() - began < PATIENCE_S:
                    slow.sendall(b"a: b\r\n")
                    with suppress(TimeoutError):
                        assert slow.recv(99).startswith(b"HTTP/1.1 408 ")
                        break
            assert time.monotonic() - began < PATIENCE_S / 2

    def test_a_body_that_does_not_come_is_given_up_and_is_no_error(
        self, app_context: AppContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        short(monkeypatch, ConnectionPhase.BODY)
        head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/yaml\r\n"
        with structlog.testing.capture_logs() as logged, served(app_context) as where, connect(where) as slow:
            slow.sendall(head + b"Content-Length: 1000\r\n\r\nkind: ")
            assert rest(slow).startswith(b"HTTP/1.1 408 ")
        assert logged == []

    def test_what_was_answered_and_asks_no_more_is_closed(
        self, app_context: AppContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        short(monkeypatch, ConnectionPhase.IDLE)
        with served(app_context) as where, connect(where) as idle, connect(where) as blank:
            for sock in (idle, blank):
                sock.sendall(ASK)
            blank.sendall(b"\r\n")  # which is no request
            assert rest(idle).endswith(b'{"status":"ok"}')
            assert rest(blank).startswith(b"HTTP/1.1 200 ")

    def test_what_was_refused_is_not_read_for_long(
        self, app_context: AppContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        short(monkeypatch, ConnectionPhase.REST)
        head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/yaml\r\n"
        with served(app_context, max_body=1024) as where, connect(where) as flood:
            flood.sendall(head + b"Content-Length: 99999999\r\n\r\n" + b"a" * 2000)
            assert rest(flood).startswith(b"HTTP/1.1 413 ")

    def test_who_is_gone_before_it_is_seen_is_no_error(
        self, app_context: AppContext, caplog: pytest.LogCaptureFixture
    ) -> None:
        with served(app_context) as where:
            for _ in range(100):
                with connect(where) as gone:
                    gone.sendall(ASK)
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert httpx.get(f"http://{where[0]}:{where[1]}/healthz").status_code == 200
        assert caplog.records == []

    def test_who_does_not_take_its_answer_is_let_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "STALL_S", 1.0)

        async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * 2**25})

        crowd = ConnectionRegistry(9, 9)
        config = uvicorn.Config(
            endless, http=connections.connections(crowd), log_config=None, lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            with connect(listener.getsockname()) as deaf:
                deaf.sendall(ASK)
                until(lambda: bool(crowd._all))
                until(lambda: not crowd._all)
            server.should_exit = True
            thread.join()

    def test_a_peer_that_says_no_more_gets_its_answer(self, app_context: AppContext) -> None:
        with served(app_context) as where, connect(where) as half:
            half.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            half.shutdown(socket.SHUT_WR)
            assert rest(half).startswith(b"HTTP/1.1 200 ")


class TestMany:
    def test_idle_connections_give_way_to_who_asks(self, app_context: AppContext) -> None:
        with (
            served(app_context, connections=10, connections_per_address=10) as where,
            ExitStack() as open_ones,
        ):
            idle = [open_ones.enter_context(connect(where)) for _ in range(60)]
            for sock in idle[::2]:
                with suppress(ConnectionError):
                    sock.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            for _ in range(5):
                assert httpx.get(f"http://{where[0]}:{where[1]}{API}/jobs").status_code == 200
            ended = [sock for sock in idle if is_over(sock)]
            assert len(ended) >= 50

    def test_more_streams_than_there_may_be_connections_are_told_so(self, app_context: AppContext) -> None:
        with served(app_context, connections_per_address=2, streams=9) as where, ExitStack() as stack:
            url = f"http://{where[0]}:{where[1]}"
            streams = [stack.enter_context(httpx.stream("GET", f"{url}{API}/watch")) for _ in range(2)]
            lines = [stream.iter_lines() for stream in streams]  # a stream ends when its lines do
            assert all(next(each).startswith("id: ") for each in lines)
            with connect(where) as late:
                said = rest(late)
            assert said.startswith(b"HTTP/1.1 503 ")
            assert json.loads(said.partition(b"\r\n\r\n")[2]) == {
                "error": "you have too many connections; close some; http.connections_per_address allows more"
            }

    def test_a_network_of_addresses_is_one(self) -> None:
        assert connections.source_of(("2001:db8:1:2::1", 9), None) == "2001:db8:1:2::/64"
        assert connections.source_of(("2001:db8:1:2:ffff::9%eth0", 9), None) == "2001:db8:1:2::/64"
        assert connections.source_of(("10.1.2.3", 9), None) == "10.1.2.3"
        assert connections.source_of(("127.9.9.9", 9), 1000) == "user 1000"

    @as_root
    def test_another_user_of_the_machine_fills_its_own_part_only_and_is_let_in_nowhere(
        self, app_context: AppContext
    ) -> None:
        with served(app_context, connections=60, connections_per_address=30) as where:
            with as_stranger(FLOOD, *where, "100") as stranger:
                assert stranger.stdout is not None
                assert stranger.stdout.readline() == "ready\n"
                for _ in range(5):
                    assert httpx.get(f"http://{where[0]}:{where[1]}{API}/jobs").status_code == 200
            with as_stranger(TRICKS, *where) as stranger:
                assert stranger.stdout is not None
                tricks = json.loads(stranger.stdout.read())
        assert set(tricks) == {"plain", "half", "pipelined", "elsewhere"}
        for name, said in tricks.items():
            assert "another user runs this Starburst" in said, name
            assert "wait-55555" not in said, name

    @as_root
    def test_another_user_who_guesses_tokens_does_not_shut_the_login_for_the_others_of_the_machine(
        self, app_context: AppContext, token: Callable[..., str]
    ) -> None:
        secret = token("admin")
        with served(app_context, requests_per_second=5) as where:
            with as_stranger(GUESSES, *where) as stranger:
                assert stranger.stdout is not None
                assert json.loads(stranger.stdout.read())[-1] == 429
            with httpx.Client(base_url=f"http://{where[0]}:{where[1]}") as browser:
                answer = browser.post("/login", data={"token": secret})
                assert answer.status_code == 303
                assert answer.headers["location"].startswith("/#forms=")


#: Only root may run our Python.
AS_STRANGER = f"""
import json, os, socket, sys, encodings.idna
os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})
"""
#: As another user: open many connections, from all over the loopback, say little, and stay.
FLOOD = """
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
kept = []
for n in range(count):
    sock = socket.socket()
    sock.bind((f"127.0.1.{n % 250 + 1}", 0))
    sock.connect((host, port))
    try:
        sock.sendall(b"GET /api/v1/jobs HTTP/1.1\\r\\nHost: loc" if n % 2 else b"")
    except ConnectionError:
        pass
    kept.append(sock)
print("ready", flush=True)
sys.stdin.read()
"""
#: As another user: ask in every way that may confuse who looks at who asks.
TRICKS = """
where = sys.argv[1], int(sys.argv[2])
ask = b"GET /api/v1/jobs HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n"
def said(data, half=False, source=None):
    with socket.create_connection(where, timeout=20, source_address=source) as sock:
        sock.sendall(data)
        if half:
            sock.shutdown(socket.SHUT_WR)
        text = b""
        while piece := sock.recv(65536):
            text += piece
    return text.decode()
health = b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
print(json.dumps({"plain": said(ask), "half": said(ask, half=True), "pipelined": said(health + ask),
                  "elsewhere": said(ask, source=("127.0.0.77", 0))}))
"""


#: As another user: log in with guesses, until the limit of requests says no.
GUESSES = """
where = sys.argv[1], int(sys.argv[2])
answers = []
while len(answers) < 500 and 429 not in answers:
    guess = f"token=starburst_{len(answers)}".encode()
    head = "POST /login HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n"
    head += f"Content-Length: {len(guess)}\\r\\n\\r\\n"
    with socket.create_connection(where, timeout=20) as sock:
        sock.sendall(head.encode() + guess)
        answers.append(int(sock.recv(4096).split()[1]))
print(json.dumps(answers))
"""


@contextmanager
def as_stranger(script: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A program of another account, until the block ends."""
    command = [sys.executable, "-I", "-c", AS_STRANGER + script, *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        yield it
        assert it.stdin is not None
        it.stdin.close()


def is_over(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def until(look: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < give_up, "it never came to be"
        time.sleep(0.02)


class TestAnswers:
    def test_every_answer_says_what_browsers_may_do_with_it(self, app_context: AppContext) -> None:
        with served(app_context) as where, httpx.Client(base_url=f"http://{where[0]}:{where[1]}") as client:
            for path in ("/", "/login", "/healthz", "/metrics", "/none", f"{API}/jobs", f"{API}/jobs/none"):
                headers = client.get(path).headers
                assert headers.get_list("x-content-type-options") == ["nosniff"], path
                assert headers.get_list("x-frame-options") == ["DENY"], path
                assert headers.get_list("referrer-policy") == ["same-origin"], path

    def test_the_description_is_for_who_may_ask(self, ask: Ask, token: Make) -> None:
        assert "/api/v1/jobs" in ask("GET", "/openapi.json").json()["paths"]
        secret = token("viewer", "papers")
        assert ask("GET", "/openapi.json").status_code == 401
        assert ask("GET", "/openapi.json", secret).status_code == 200

    def test_a_bug_is_told_by_an_id_under_which_the_log_has_its_traceback(
        self, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = io.StringIO()
        monkeypatch.setattr(sys, "stderr", log)
        before = structlog.get_config()
        set_up_log(text=False)
        try:
            monkeypatch.setattr("starburst.web.routes.fleet.cost_keys", lambda *_: 1 / 0)
            answer = ask("GET", "/cost")
        finally:
            structlog.configure(**before)
        assert answer.status_code == 500
        said = json.loads(log.getvalue())
        assert answer.json()["error"].endswith(f"under the id {said['id']}")
        assert (said["method"], said["path"]) == ("GET", "/api/v1/cost")
        assert "Traceback (most recent call last)" in said["exception"]
        assert "ZeroDivisionError" in said["exception"]

    def test_who_leaves_within_its_body_is_no_error_of_ours(self, app_context: AppContext) -> None:
        head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/yaml\r\n"
        with structlog.testing.capture_logs() as logged, served(app_context) as where:
            for _ in range(3):
                with connect(where) as rude:
                    rude.sendall(head + b"Content-Length: 1000\r\n\r\nkind: ")
            assert httpx.get(f"http://{where[0]}:{where[1]}{API}/jobs").status_code == 200
        assert logged == []

    def test_a_scheduler_that_hangs_is_not_healthy(self, app_context: AppContext) -> None:
        heartbeat = SchedulerHeartbeat()
        with served(AppContext(app_context.home, app_context.store, heartbeat=heartbeat)) as where:
            url = f"http://{where[0]}:{where[1]}/healthz"
            assert httpx.get(url).json() == {"status": "ok"}
            heartbeat.beat_at -= 100
            answer = httpx.get(url)
            assert answer.status_code == 503
            assert re.match(r"the scheduler has made no step for 1\d\d s; ", answer.json()["error"])
