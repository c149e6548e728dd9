"""The Python client against a real server, which goes away and comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from starburst import Client
from starburst.app.config.http import HttpConfig
from starburst.client import NotFoundError, RefusedError, StarburstError, UnreachableError
from starburst.web.context import AppContext
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving
from tests.cli.manifests import manifest
from tests.cli.past import Past
from tests.web.test_api import take_up, write


@pytest.fixture
def server(app_context: AppContext) -> Iterator[str]:
    settings = HttpConfig(port=0)
    with listening(settings) as sock, serving(app_context, settings, sock) as url:
        yield url


@pytest.fixture
def client(server: str) -> Iterator[Client]:
    with Client(server) as opened:
        yield opened


def test_what_is_asked_is_what_the_command_line_says(client: Client) -> None:
    assert [row["id"] for row in client.jobs(phases=["running"], user="ada")] == [
        "render-33333",
        "train-44444",
    ]
    assert [row["id"] for row in client.jobs(queues=["papers"])] == ["bad-22222"]
    assert [step["decision"] for step in client.job("bad")["decisions"]] == ["offloaded", "started", "failed"]
    assert client.explain("wait")["position"] == 1
    assert [row["id"] for row in client.instances(include_ended=True)] == ["i-000001", "i-000002"]
    assert client.cost("day")[-1]["running_usd"] == 2.04
    assert [node["name"] for node in client.nodes()] == ["node"]
    assert client.offers()[0]["usd_per_hour"] == 2.04
    assert client.summary()["jobs"]["running"] == 2
    log = client.events()
    assert client.events(last=3) == client.events(last=2000)[-3:] == log[-3:]
    assert client.events("bad-22222", after=log[5]["seq"])[-1]["decision"] == "failed"


def test_pages_are_put_together(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, log = client.jobs(), client.events()
    monkeypatch.setattr("starburst.client.http.PAGE", 2)
    monkeypatch.setattr("starburst.client.http.IDS", 2)
    assert client.jobs() == whole
    assert client.events() == log
    assert client.jobs(ids=[row["id"] for row in whole]) == whole


def test_jobs_are_submitted_steered_and_waited_for(server: str, past: Past, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(manifest("file", "true", cloud="never"))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        take_up(past, 9)
        for job in sent[:2]:
            past.end(job)

    with Client(server, sleep=sleep) as client:
        past.end("train-44444")
        sent = [
            client.submit(manifest_)[0]["id"]
            for manifest_ in (
                file,
                manifest("text", "true", cloud="never") + "\n",
                json.loads(manifest("dict", "true", gpus=4, cloud="never")),
            )
        ]
        assert client.submit(str(file), dry_run=True)[0]["name"] == "file"
        assert [row["phase"] for row in client.wait(sent[:2])] == ["succeeded"] * 2
        assert slept == [1.0]
        with pytest.raises(TimeoutError, match=f"1 of 1 jobs are not over, such as {sent[2]}"):
            client.wait(sent[2:], timeout_s=0.0)
        assert client.cancel(sent[2])["id"] == sent[2]
        assert [row["id"] for row in client.steer("cancel", iter(["dict", "wait"]))] == [
            sent[2],
            "wait-55555",
        ]
        assert [row["id"] for row in client.named(["wait", "done"])] == ["wait-55555", "done-11111"]
        with pytest.raises(RefusedError, match="document 1: kind"):
            client.submit({"kind": "Pot"})
        with pytest.raises(NotFoundError, match="there is no job 'nobody'"):
            client.job("nobody")


def test_what_a_job_wrote_comes_whole_and_ends_with_the_job(client: Client, home: Path, past: Past) -> None:
    write(home, "train-44444", 0, "one\n")
    assert "".join(client.logs("train")) == "one\n"
    assert list(client.logs("wait")) == []
    pieces = client.logs("train", follow=True)
    assert next(pieces) == "one\n"
    with (home / "cluster" / "train-44444" / "1" / "0" / "log").open("a") as log:
        log.write("two")
    past.end("train-44444")
    assert "".join(pieces) == "two"


def test_a_watch_misses_nothing_though_the_server_goes_away(app_context: AppContext, past: Past) -> None:
    settings = HttpConfig(port=0)
    with listening(settings) as sock, serving(app_context, settings, sock) as url:
        port = sock.getsockname()[1]
        client = Client(url, sleep=lambda _: time.sleep(0.01))
        watch = client.watch(after=0)
        seen = [next(watch)["seq"] for _ in range(3)]
    past.submit("late-66666")
    settings = HttpConfig(port=port)
    with listening(settings) as sock, serving(app_context, settings, sock), client, closing(watch):
        last = client.summary()["last_seq"]
        while seen[-1] < last:
            seen.append(next(watch)["seq"])
        assert seen == list(range(1, last + 1))
        past.end("train-44444")
        assert next(watch)["seq"] == last + 1


def test_a_watch_of_a_server_that_was_never_there_ends() -> None:
    pauses: list[float] = []
    with Client("http://127.0.0.1:1", tries=3, sleep=pauses.append) as client:
        with pytest.raises(UnreachableError, match="does not answer"):
            next(client.watch())
        assert len(pauses) == 2


def test_a_watch_from_now_on_begins_where_the_log_ends(client: Client, past: Past) -> None:
    with httpx.stream("GET", f"{client.server}/api/v1/watch") as answer:
        lines = answer.iter_lines()
        assert next(lines) == f"id: {client.summary()['last_seq']}"
        past.end("train-44444")
        assert [next(lines) for _ in range(3)][2] == "event: decision"


def test_only_what_may_be_asked_twice_is_tried_again() -> None:
    asked: list[str] = []
    slept: list[float] = []
    answers = iter([503, 429, 200, 503, 503, 429, 200])

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        status = next(answers)
        headers = {"Retry-After": "2"} if status == 429 else {}
        return httpx.Response(status, headers=headers, json=[] if status == 200 else {"error": "busy"})

    client = Client("http://x", sleep=slept.append)
    client._connection._http = httpx.Client(transport=httpx.MockTransport(handle), base_url="http://x")
    assert client.offers() == []
    assert slept == [0.2, 2.0]
    with pytest.raises(RefusedError, match="busy"):
        client.submit("a: b\n")
    assert asked == ["GET"] * 3 + ["POST"]
    with pytest.raises(RefusedError, match="busy"):
        client.submit("a: b\n")
    assert client.submit("a: b\n") == []
    assert asked[4:] == ["POST"] * 3
    client.close()


def test_a_requeue_is_not_repeated_since_it_might_stop_the_next_run() -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(503, json={"error": "busy"})

    client = Client("http://x", sleep=lambda _: None, tries=3)
    client._connection._http = httpx.Client(transport=httpx.MockTransport(handle), base_url="http://x")
    for steer in (client.requeue, client.hold):
        with pytest.raises(RefusedError, match="busy"):
            steer("a")
    for how in ("requeue", "hold"):
        with pytest.raises(RefusedError, match="busy"):
            client.steer(how, ["a"])
    assert [path.rpartition("/")[2] for path in asked] == (["requeue"] + ["hold"] * 3) * 2
    client.close()


def test_what_is_no_starburst_is_one_line() -> None:
    client = Client("http://x", sleep=lambda _: None)
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>Log in</html>"))
    client._connection._http = httpx.Client(transport=page, base_url="http://x")
    for ask in (client.offers, client.summary, lambda: client.hold("a"), lambda: client.submit("a: b\n")):
        with pytest.raises(StarburstError, match="is it Starburst"):
            ask()
    client.close()


def test_a_server_that_is_not_there_is_one_line() -> None:
    with listening(HttpConfig(port=0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    slept: list[float] = []
    with Client(url, sleep=slept.append) as client, pytest.raises(UnreachableError) as told:
        client.jobs()
    assert str(told.value).startswith(f"{url}: does not answer (")
    assert slept == [0.2, 0.4, 0.8]
    with pytest.raises(StarburstError, match="write it like http://127"):
        Client("localhost:8585")


def test_a_token_goes_along(app_context: AppContext, server: str, token: Callable[..., str], wall) -> None:
    wall.now = time.time()
    secret = token("viewer")
    with Client(server) as client, pytest.raises(RefusedError, match="a token is needed"):
        client.jobs()
    with Client(server, secret) as client:
        assert len(client.jobs()) == 5
        with pytest.raises(RefusedError, match="this needs a submitter's"):
            client.cancel("wait")
    with Client(server, f" {secret}\n") as client:
        assert len(client.jobs()) == 5
    for wrong in ("geheimnis\u00e4", "two\nlines"):
        with pytest.raises(StarburstError, match="the token has characters that no token has") as told:
            Client(server, wrong)
        assert wrong not in str(told.value)
