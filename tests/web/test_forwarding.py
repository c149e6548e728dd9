"""A replica that stands by answers questions itself, and has the leader do what changes something."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient

from starburst.app.config.http import HttpConfig
from starburst.store import leader
from starburst.store.leader import LeaderClaim
from starburst.store.report_tokens import make_report_key, report_token
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.forwarding import FORWARDED, ForwardToLeader
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving

CANCEL = "/api/v1/jobs/train-44444/cancel?now=true"


@dataclass
class Leader:
    """Notes what it is asked, and answers the same to everybody."""

    url: str = ""
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def other() -> Iterator[Leader]:
    noted = Leader()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            noted.asked.append(
                (self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            )
            said = json.dumps({"by": "the leader"}).encode()
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_PUT = do_POST  # noqa: N815 - the library's name

        def log_message(self, *_: Any) -> None:
            """Nothing on stderr."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        noted.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield noted
        server.shutdown()
        thread.join()


def client_of(app_context: AppContext, name: str, settings: HttpConfig | None = None) -> TestClient:
    """Asks the replica of this name."""
    object.__setattr__(app_context, "replica", name)
    app = make_app(app_context, settings or HttpConfig())
    services = app.state.services
    return TestClient(
        ForwardToLeader(app, app_context, services.authenticator),
        base_url="http://127.0.0.1:8585",
        client=("127.0.0.1", 5000),
    )


@pytest.fixture
def standby(app_context: AppContext, other: Leader) -> TestClient:
    leader.take(app_context.store, None, LeaderClaim("b", other.url))
    return client_of(app_context, "a")


def test_what_changes_something_is_done_by_the_leader(standby: TestClient, other: Leader) -> None:
    said = standby.post(CANCEL, content=b"{}", headers={"Content-Type": "application/json", "Cookie": "a=b"})
    assert (said.status_code, said.json()) == (201, {"by": "the leader"})
    ((method, path, headers, body),) = other.asked
    assert (method, path, body) == ("POST", CANCEL, b"{}")
    assert headers["content-type"] == "application/json"
    assert headers[FORWARDED] == "a"
    assert "cookie" not in headers


def test_questions_are_answered_here(standby: TestClient, other: Leader) -> None:
    assert standby.get("/api/v1/jobs").status_code == 200
    assert standby.get("/").status_code == 200
    assert standby.get("/healthz").json() == {"status": "stands by"}
    assert standby.get("/healthz/leader").status_code == 503
    assert other.asked == []


def test_the_leader_does_everything_itself(app_context: AppContext, other: Leader) -> None:
    leader.take(app_context.store, None, LeaderClaim("b", other.url))
    leads = client_of(app_context, "b")
    assert leads.post("/api/v1/jobs/none/cancel").status_code == 404
    assert leads.get("/healthz/leader").json() == {"status": "leads"}
    assert other.asked == []


def test_without_a_leader_that_is_said_plainly(app_context: AppContext, other: Leader) -> None:
    client = client_of(app_context, "a")
    leader.take(app_context.store, None, LeaderClaim("b", other.url))
    leader.release(app_context.store, 1)
    refused = client.post(CANCEL)
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "5"
    assert "no starburst leads now" in refused.json()["error"]


def test_a_leader_that_does_not_answer_is_named(app_context: AppContext) -> None:
    leader.take(app_context.store, None, LeaderClaim("b/7", "http://127.0.0.1:9"))
    refused = client_of(app_context, "a").post(CANCEL)
    assert refused.status_code == 503
    assert refused.json()["error"].startswith("b/7, which leads, does not answer")


def test_a_leader_without_an_api_is_named(app_context: AppContext) -> None:
    leader.take(app_context.store, None, LeaderClaim("b/7"))
    refused = client_of(app_context, "a").post(CANCEL)
    assert (refused.status_code, "has no API" in refused.json()["error"]) == (503, True)


def test_nothing_goes_round_in_circles(standby: TestClient, other: Leader) -> None:
    assert standby.post(CANCEL, headers={FORWARDED: "c"}).status_code == 503
    assert other.asked == []


def test_a_stranger_is_refused_here_since_the_leader_would_take_him_for_this_machine(
    standby: TestClient, token: Callable[..., str], other: Leader
) -> None:
    """Without a token the leader trusts its own machine, from which this replica asks."""
    token("admin")
    assert standby.post(CANCEL).status_code == 401
    assert standby.post(CANCEL, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert standby.post(CANCEL, headers={"Origin": "http://elsewhere.example"}).status_code == 403
    assert other.asked == []


@pytest.mark.parametrize("with_token", [False, True])
def test_forms_of_a_standbys_pages_are_written_into_the_store_that_the_leader_reads(
    standby: TestClient, app_context: AppContext, token: Callable[..., str], other: Leader, with_token: bool
) -> None:
    """Its session and the token of its forms are nobody else's."""
    if with_token:
        login = standby.post("/login", data={"token": token("admin")}, follow_redirects=False)
        form_token = login.headers["location"].partition("#forms=")[2]
    else:
        form_token = standby.get("/submit").text.partition('name="form_token" value="')[2].partition('"')[0]
    for path, fields in (
        ("/dashboard/jobs/wait-55555/steer", {"verb": "hold"}),
        ("/submit", {"command": "echo hi"}),
    ):
        sent = standby.post(path, data={**fields, "form_token": form_token}, follow_redirects=False)
        assert sent.status_code == 303
    assert [request.kind for request in app_context.store.requests(9)] == ["hold", "submit"]
    assert standby.post("/submit", data={"command": "echo hi", "form_token": "guess"}).status_code == 403
    assert other.asked == []


def test_a_run_reports_through_any_replica(
    standby: TestClient, app_context: AppContext, other: Leader
) -> None:
    secret = report_token(make_report_key(app_context.store), "train-44444")
    path = "/api/v1/jobs/train-44444/attempts/1/progress"
    headers = {"Authorization": f"Bearer {secret}"}
    assert standby.put(path, json={"done": 1}, headers=headers).status_code == 201
    assert other.asked[0][2]["authorization"] == f"Bearer {secret}"


@pytest.mark.parametrize("path", ["/api/v1/jobs/other-1/attempts/1/progress", CANCEL])
def test_the_token_of_a_run_is_good_for_reports_on_its_job_only(
    standby: TestClient, app_context: AppContext, other: Leader, path: str
) -> None:
    secret = report_token(make_report_key(app_context.store), "train-44444")
    assert standby.put(path, headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert standby.post(path, headers={"Authorization": "Bearer starburst_report_x"}).status_code == 401
    assert other.asked == []


@pytest.mark.parametrize("target", ["@{there}/secret", "http://{there}/secret", "{there}/secret", "/a%ff#x"])
@pytest.mark.parametrize("method", ["POST", "post", "get", "DELETE"])
def test_no_address_leads_elsewhere(
    app_context: AppContext, token: Callable[..., str], other: Leader, target: str, method: str
) -> None:
    """Over a socket: a client would write such lines differently, and the server takes them as they are."""
    leader.take(app_context.store, None, LeaderClaim("b", "http://127.0.0.1:9"))
    object.__setattr__(app_context, "replica", "a")
    settings = HttpConfig(port=0)
    where = target.format(there=other.url.removeprefix("http://"))
    with listening(settings) as sock, serving(app_context, settings, sock):
        assert sock is not None
        with socket.create_connection(sock.getsockname()[:2], timeout=20) as line:
            asked = (f"{method} {where} HTTP/1.1", "Host: a", f"Authorization: Bearer {token('admin')}")
            line.sendall("\r\n".join((*asked, "Content-Length: 0", "", "")).encode())
            status = int(line.recv(4096).split()[1])
    assert status in (400, 404, 405, 503)
    assert other.asked == []


def test_pages_metrics_and_the_summary_say_which_replica_leads(standby: TestClient) -> None:
    assert "This replica stands by; <b>b</b> leads." in standby.get("/").text
    assert standby.get("/api/v1/summary").json()["leader"] == "b"
    metrics = standby.get("/metrics").text
    assert "starburst_leading 0.0\n" in metrics
    assert "starburst_leader_epoch 1.0\n" in metrics


def test_a_page_says_that_none_leads(app_context: AppContext) -> None:
    client = client_of(app_context, "a")
    leader.take(app_context.store, None, LeaderClaim("b"))
    leader.release(app_context.store, 1)
    assert "No replica leads at present." in client.get("/").text


def test_a_single_scheduler_says_nothing_of_replicas(app_context: AppContext) -> None:
    client = client_of(app_context, "")
    assert "replica" not in client.get("/").text
    assert "\nstarburst_leading " not in client.get("/metrics").text
    assert client.get("/api/v1/summary").json()["leader"] is None
