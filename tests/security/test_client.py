"""The client's token: told to the server it is for, and to nobody on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from starburst import Client
from starburst.client import StarburstError
from tests.cli.conftest import Cli, cli, home  # noqa: F401 - fixtures

SECRET = "starburst_SECRET"


class Recording(BaseHTTPRequestHandler):
    """A Starburst that has nothing; it keeps what it was asked, and with which token."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))  # type: ignore[attr-defined]
        body = b'{"now": "2026-03-02T12:00:00+00:00"}' if self.path.endswith("/summary") else b"[]"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Recorder(HTTPServer):
    asked: list[tuple[str, str | None]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def recorder() -> Iterator[Recorder]:
    with Recorder(("127.0.0.1", 0), Recording) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


server = pytest.fixture(recorder, name="server")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """What the environment of a login node names for all that is asked."""
    for one in recorder():
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, one.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        yield one


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_proxy_is_not_told_of_what_is_asked_of_this_machine(
    server: Recorder, proxy: Recorder, host: str
) -> None:
    with Client(f"http://{host}:{server.server_port}", SECRET) as client:
        assert client.offers() == []
    assert proxy.asked == []
    assert server.asked == [("/api/v1/offers", f"Bearer {SECRET}")]


def test_the_command_line_does_neither(
    cli: Cli,  # noqa: F811
    server: Recorder,
    proxy: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STARBURST_TOKEN", SECRET)
    monkeypatch.setenv("STARBURST_SERVER", server.url)
    assert cli("instances", "-o", "json").code == 0
    assert proxy.asked == []
    assert server.asked[0][1] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    "far",
    [
        "http://far.example:8585",
        "http://10.1.2.3",
        "http://127.0.0.1.far.example",
        "http://127.0.0.1@far.example",
    ],
)
def test_a_token_is_not_sent_to_others_where_everybody_on_the_way_reads_it(far: str, proxy: Recorder) -> None:
    with pytest.raises(StarburstError) as told:
        Client(far, SECRET)
    assert str(told.value) == (
        f"{far}: the token would go there unencrypted; use https or, where nobody listens in, "
        "--insecure (STARBURST_INSECURE=1)"
    )
    Client(far).close()
    Client(far.replace("http", "https"), SECRET).close()
    assert proxy.asked == []


def test_who_says_so_sends_it_nevertheless(
    cli: Cli,  # noqa: F811
    proxy: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = "http://far.example:8585"
    monkeypatch.setenv("STARBURST_TOKEN", SECRET)
    said = cli("--server", far, "instances")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert said.err.startswith(f"error: {far}: the token would go there unencrypted")
    assert proxy.asked == []
    assert cli("--server", far, "--insecure", "instances", "-o", "json").code == 0
    monkeypatch.setenv("STARBURST_INSECURE", "1")
    assert cli("--server", far, "instances", "-o", "json").code == 0
    with Client(far) as client:
        assert client.offers() == []
    assert {secret for _, secret in proxy.asked} == {f"Bearer {SECRET}"}
    assert len(proxy.asked) >= 3


def test_a_token_does_not_follow_to_where_it_is_sent_on(server: Recorder) -> None:
    with Client("http://localhost", SECRET) as client:
        assert client._connection._http.follow_redirects is False


@pytest.mark.parametrize("none", ["localhost:8585", "ftp://x", "http://", "here", "http:///x"])
def test_what_is_no_address_is_one_line(none: str) -> None:
    with pytest.raises(StarburstError, match="is no address of a server; write it like http://127") as told:
        Client(none, SECRET)
    assert "\n" not in str(told.value)
