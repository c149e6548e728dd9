"""What a browser is shown where it is refused: a page that says why, or the login; programs get JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from starburst.app.config.http import HttpConfig
from starburst.store.errors import DamagedError, DiskFullError
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.dashboard import actions
from tests.web.conftest import HERE, TestClient, Time

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def browser(app_context: AppContext, wall: Time, clock: Time) -> Iterator[TestClient]:
    app = make_app(app_context, HttpConfig(), clock=clock, wall=wall)
    with TestClient(app, base_url=HERE, follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/jobs?page_number=0", 400, "page_number: input should be greater than or equal to 1"),
        ("/dashboard/jobs/zzz/actions", 404, "there is no job &#39;zzz&#39;"),
        ("/dashboard/jobs/wait-55555/steer", 405, "Method Not Allowed"),
    ],
)
def test_a_page_says_what_is_wrong_with_an_address(
    browser: TestClient, path: str, status: int, why: str
) -> None:
    page = browser.get(path, headers=PAGE)
    assert (page.status_code, page.headers["Cache-Control"]) == (status, "no-store")
    assert f'<p class="told">{why}.</p>' in page.text
    assert browser.get(path).json()["error"] == why.replace("&#39;", "'")


def test_a_form_that_is_refused_is_told_so_on_a_page(browser: TestClient) -> None:
    form_token = browser.get("/submit").text.partition('name="form_token" value="')[2].partition('"')[0]
    for job, fields, why in (
        ("wait-55555", {"verb": "cancel"}, "this form is of a page from before a restart"),
        ("wait-55555", {"verb": "no", "form_token": form_token}, "verb: is none of hold"),
        (
            "dome",
            {"verb": "cancel", "form_token": form_token},
            "there is no job &#39;dome&#39;; did you mean done?<",
        ),
    ):
        told = browser.post(f"/dashboard/jobs/{job}/steer", data=fields, headers=PAGE)
        assert told.status_code in (400, 403, 404)
        assert f'<p class="told">{why}' in told.text


def test_a_form_whose_session_is_over_leads_to_the_login(
    browser: TestClient, token: Callable[..., str]
) -> None:
    token("admin")
    path = "/dashboard/jobs/wait-55555/steer"
    told = browser.post(path, data={"verb": "cancel"}, headers=PAGE)
    assert (told.status_code, told.headers["location"]) == (303, "/login")
    assert browser.post(path, data={"verb": "cancel"}).status_code == 401
    assert browser.post("/api/v1/jobs/wait/cancel", headers=PAGE).status_code == 401


def test_a_token_for_some_queues_is_told_why_it_sees_no_page_and_can_log_out(
    browser: TestClient, token: Callable[..., str]
) -> None:
    browser.post("/login", data={"token": token("viewer", "papers")})
    page = browser.get("/", headers=PAGE)
    assert page.status_code == 403
    assert "the token &#39;viewer&#39; is for some queues only; this shows them all" in page.text
    assert 'action="/logout"' in page.text


def test_a_login_with_too_many_fields_is_refused(browser: TestClient) -> None:
    told = browser.post("/login", data={f"field-{n}": "x" for n in range(21)}, headers=PAGE)
    assert (told.status_code, "the form has more than 20 fields" in told.text) == (400, True)


def test_the_page_of_a_job_is_told_why_it_gets_no_log(app_context: AppContext) -> None:
    """A browser shows a page no more of a stream that is refused than that there is none."""
    app = make_app(app_context, HttpConfig(streams=1))
    with TestClient(app, base_url=HERE) as browser:
        limits = app.state.services.authenticator.limits
        limits.take_stream("testclient")
        for job, why in (("wait-55555", "too many streams: 1 are open"), ("zzz", "there is no job 'zzz'")):
            told = browser.get(f"/dashboard/jobs/{job}/log", headers={"Accept": "text/event-stream"})
            assert (told.status_code, told.headers["content-type"]) == (
                200,
                "text/event-stream; charset=utf-8",
            )
            assert told.text.startswith(f'event: error\ndata: {{"error": "{why}')


@pytest.mark.parametrize(
    ("error", "status", "why"),
    [
        (ZeroDivisionError(), 500, "Starburst failed to answer; its log says why, under the id "),
        (DiskFullError("starburst.db"), 507, "the disk is full; starburst doctor"),
        (DamagedError("starburst.db"), 503, "the store is damaged; starburst doctor"),
    ],
)
def test_what_fails_here_is_told_on_a_page_too(
    app_context: AppContext, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, why: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(actions, "_form", fail)
    app = make_app(app_context, HttpConfig())
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
        page = client.get("/submit", headers=PAGE)
        assert (page.status_code, "<h1>No answer</h1>" in page.text) == (status, True)
        assert why in page.text
        told = client.get("/submit")
        assert (told.status_code, told.json()["error"].startswith(why)) == (status, True)
