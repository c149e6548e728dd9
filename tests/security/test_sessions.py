"""A browser's cookie: worth nothing but a look at pages, for twelve hours, while its token holds."""
# ruff: noqa: F401, F811 - fixtures

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from starburst.app.config.http import HttpConfig
from starburst.store import tokens
from starburst.web import sessions
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving
from tests.web.conftest import (
    HERE,
    Ask,
    TestClient,
    Time,
    app_context,
    ask,
    chromium,
    clock,
    home,
    morning,
    settings,
    token,
    wall,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Make = Callable[..., str]
NAME = "starburst_session_8585"
PAGES = ("/", "/dashboard/overview", "/jobs/wait-55555", "/dashboard/static/dashboard.css")
#: What a session does not open.
REST = ("/metrics", "/openapi.json", "/api/v1/jobs", "/api/v1/watch", "/api/v1/jobs/wait/logs")


@pytest.fixture
def browser(app_context: AppContext, wall: Time, clock: Time) -> Iterator[TestClient]:
    """Keeps cookies, as browsers do."""
    app = make_app(app_context, HttpConfig(), clock=clock, wall=wall)
    with TestClient(app, base_url=HERE, follow_redirects=False) as client:
        yield client


def log_in(browser: TestClient, secret: str) -> str:
    """The cookie's value."""
    answer = browser.post("/login", data={"token": secret})
    assert (answer.status_code, answer.headers["location"].partition("#")[0]) == (303, "/")
    return str(browser.cookies[NAME])


def test_the_cookie_is_not_the_token_and_nothing_that_is_kept_opens_anything(
    browser: TestClient, token: Make, home: Path
) -> None:
    secret = token("admin")
    cookie = log_in(browser, secret)
    assert secret not in cookie
    browser.cookies.clear()
    for stolen in (cookie, f"starburst_{cookie}"):
        assert browser.get("/api/v1/jobs", headers={"Authorization": f"Bearer {stolen}"}).status_code == 401
    kept = b"".join(path.read_bytes() for path in home.glob("starburst.db*"))
    assert cookie.encode() not in kept
    known = browser.app.state.services.authenticator.sessions._known  # type: ignore[attr-defined]
    assert cookie not in str(known)
    assert secret not in str(known)


def test_it_shows_pages_and_does_nothing_else(
    browser: TestClient, token: Make, app_context: AppContext
) -> None:
    log_in(browser, token("admin"))
    for path in PAGES:
        assert browser.get(path).status_code == 200, path
    for path in REST:
        assert browser.get(path).status_code == 401, path
    assert browser.post("/api/v1/jobs/wait/cancel").status_code == 401
    assert browser.put("/api/v1/jobs/wait/attempts/1/progress", json={}).status_code == 401
    assert app_context.store.requests(9) == []


def test_a_session_of_a_token_for_some_queues_sees_no_more_than_the_token(
    browser: TestClient, token: Make
) -> None:
    log_in(browser, token("admin", "papers"))
    assert browser.get("/").status_code == 403


def test_it_ends_after_twelve_hours_used_or_not(browser: TestClient, token: Make, wall: Time) -> None:
    log_in(browser, token("viewer"))
    for _ in range(11):
        wall.now += 3600
        assert browser.get("/").status_code == 200
    wall.now += 3600
    assert browser.get("/").status_code == 401


def test_it_ends_with_its_token(
    browser: TestClient, token: Make, app_context: AppContext, wall: Time
) -> None:
    token("admin")
    log_in(browser, token("viewer"))
    assert browser.get("/").status_code == 200
    tokens.revoke(app_context.store, "viewer")
    assert browser.get("/").status_code == 401
    again = token("viewer")  # another one of the same name
    assert browser.get("/").status_code == 401
    log_in(browser, again)
    assert browser.get("/").status_code == 200
    log_in(browser, token("viewer", name="short", expires_at=wall.now + 60))
    wall.now += 60
    assert browser.get("/").status_code == 401


def test_logging_out_ends_it_and_only_our_own_page_can(browser: TestClient, token: Make) -> None:
    cookie = log_in(browser, token("viewer"))
    assert 'action="/logout"' in browser.get("/").text
    refused = browser.post("/logout", headers={"Origin": "https://evil.example"})
    assert refused.status_code == 403
    assert browser.get("/logout").status_code == 405
    assert browser.get("/").status_code == 200
    answer = browser.post("/logout", headers={"Origin": HERE})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert NAME not in browser.cookies
    assert browser.get("/", headers={"Cookie": f"{NAME}={cookie}"}).status_code == 401


def test_without_a_session_there_is_nothing_to_log_out_of(browser: TestClient, token: Make) -> None:
    assert "/logout" not in browser.get("/").text
    secret = token("viewer")
    assert "/logout" not in browser.get("/", headers={"Authorization": f"Bearer {secret}"}).text


def test_who_logs_in_again_has_one_session(browser: TestClient, token: Make) -> None:
    secret = token("viewer")
    before, after = log_in(browser, secret), log_in(browser, secret)
    browser.cookies.clear()
    assert browser.get("/", headers={"Cookie": f"{NAME}={before}"}).status_code == 401
    assert browser.get("/", headers={"Cookie": f"{NAME}={after}"}).status_code == 200


def test_a_cookie_that_another_port_has_planted_is_in_nobodys_way(browser: TestClient, token: Make) -> None:
    cookie = log_in(browser, token("viewer"))
    browser.cookies.clear()
    for planted in (f"{NAME}=evil; {NAME}={cookie}", f"{NAME}={cookie}; {NAME}=; {NAME}=x; ;=;"):
        assert browser.get("/", headers={"Cookie": planted}).status_code == 200


def test_a_cookie_that_is_none_is_not_asked_about_in_the_store(
    browser: TestClient, token: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    token("viewer")
    monkeypatch.setattr(tokens, "find_hashed", lambda *_: pytest.fail("it was"))
    many = "; ".join(f"{NAME}={n}" for n in range(500))
    assert browser.get("/", headers={"Cookie": many}).status_code == 401


def test_there_are_so_many_sessions_at_most(
    browser: TestClient, token: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST", 2)
    secret, found = token("viewer"), list[str]()
    for _ in range(3):
        found.append(log_in(browser, secret))
        browser.cookies.clear()
    asked = [browser.get("/", headers={"Cookie": f"{NAME}={cookie}"}).status_code for cookie in found]
    assert asked == [401, 200, 200]


class Neighbour(BaseHTTPRequestHandler):
    """Another user's web server on the same host: it keeps the cookies that it is sent."""

    def do_GET(self) -> None:
        self.server.cookies.append(self.headers.get("Cookie", ""))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>neighbour</title>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def neighbour() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Neighbour) as server:
        server.cookies = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.browser
def test_in_a_real_browser_what_another_port_is_sent_opens_nothing_there(
    chromium: Browser, app_context: AppContext, wall: Time, token: Make, neighbour: HTTPServer
) -> None:
    wall.now = time.time()
    secret, config = token("admin"), HttpConfig(port=0)
    with listening(config) as sock:
        assert sock is not None
        with serving(app_context, config, sock) as url:
            page = chromium.new_page()
            page.goto(url)
            assert page.url == f"{url}/login"
            page.fill("input[name=token]", secret)
            page.click("button")
            page.wait_for_url(f"{url}/")
            assert page.locator("a.brand").is_visible()
            (cookie,) = page.context.cookies()
            port = sock.getsockname()[1]
            assert cookie["name"] == f"starburst_session_{port}"
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
            assert page.evaluate("document.cookie") == ""

            page.goto(f"http://127.0.0.1:{neighbour.server_port}/")
            (sent, *_) = neighbour.cookies  # type: ignore[attr-defined]
            assert secret not in sent
            stolen = sent.partition("=")[2]
            for headers in ({"Authorization": f"Bearer {stolen}"}, {"Cookie": sent}):
                assert httpx.get(f"{url}/api/v1/jobs", headers=headers).status_code == 401
                assert httpx.post(f"{url}/api/v1/jobs/wait/cancel", headers=headers).status_code == 401

                buttons = httpx.get(f"{url}/dashboard/jobs/wait-55555/actions", headers={"Cookie": sent}).text
                for form_token in re.findall('name="form_token" value="([^"]*)"', buttons):
                    fields = {"verb": "hold", "form_token": form_token}
                    steer = f"{url}/dashboard/jobs/wait/steer"
                    assert httpx.post(steer, data=fields, headers={"Cookie": sent}).status_code == 403
            assert app_context.store.requests(9) == []

            page.goto(f"{url}/jobs/wait-55555")
            with page.expect_response("**/steer"):
                page.get_by_role("button", name="Hold").click()
            assert [request.kind for request in app_context.store.requests(9)] == ["hold"]

            page.goto(url)
            page.click("text=Log out")
            page.wait_for_url(f"{url}/login")
            assert page.context.cookies() == []
            page.goto(url)
            assert page.url == f"{url}/login"
            assert httpx.get(url, headers={"Cookie": sent}).status_code == 401
            page.close()
