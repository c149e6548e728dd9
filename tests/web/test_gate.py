"""Who may ask what: tokens, roles, queues, limits; and this machine alone where there is no token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import Depends

from starburst.app.config import parse_config
from starburst.app.config.http import HttpConfig
from starburst.domain.job import OWNER
from starburst.store import tokens
from starburst.store.listings import pages, queries
from starburst.store.upkeep.rollup import roll_up
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.dependencies import unscoped_viewer
from tests.cli.manifests import manifest
from tests.cli.past import NOON, Past
from tests.web.conftest import HERE, Ask, TestClient, Time
from tests.web.test_api import ids, refused

Make = Callable[..., str]
READS = ["/jobs", "/jobs/wait", "/jobs/wait/explain", "/jobs/wait/events", "/jobs/wait/logs"]
READS += ["/queues", "/instances", "/cost", "/events", "/nodes", "/offers", "/summary"]


def in_queue(name: str, queue: str) -> dict[str, Any]:
    job: dict[str, Any] = json.loads(manifest(name, "true"))
    job["metadata"].setdefault("labels", {})["starburst.io/queue"] = queue
    return job


def test_without_any_token_this_machine_may_do_everything(ask: Ask) -> None:
    assert ask("GET", "/jobs").status_code == 200
    assert ask("POST", "/jobs/wait/cancel").status_code == 200


def test_with_one_token_nobody_gets_in_without(ask: Ask, token: Make, app_context: AppContext) -> None:
    secret = token("viewer")
    for path in READS:
        said = refused(answer := ask("GET", path), 401)
        assert said == "a token is needed; have one made with: starburst token create"
        assert answer.headers["www-authenticate"] == "Bearer"
        refused(ask("GET", path, token="starburst_guess"), 401)
        assert ask("GET", path, token=secret).status_code in (200, 204)
    with TestClient(make_app(app_context, HttpConfig()), base_url=HERE) as client:
        assert client.get("/healthz").json() == {"status": "ok"}


def test_a_viewer_changes_nothing_and_a_submitter_only_its_own(ask: Ask, token: Make, past: Past) -> None:
    look, send, rule = token("viewer"), token("submitter"), token("admin")
    job = {"json": in_queue("a", "default")}
    assert "is a viewer's; this needs a submitter's" in refused(ask("POST", "/jobs", look, **job), 403)
    refused(ask("POST", "/jobs/wait/cancel", look), 403)
    (sent,) = ask("POST", "/jobs", send, **job).json()
    assert queries.job(past.store, sent["id"]).user == "submitter"
    assert ask("POST", f"/jobs/{sent['id']}/cancel", send).status_code == 200
    said = refused(ask("POST", "/jobs/wait/cancel", send), 403)
    assert said == "job wait-55555 is ada's; the token 'submitter' steers its own only"
    refused(ask("POST", "/jobs?user=ada", send, **job), 403)
    assert ask("POST", "/jobs/wait/cancel", rule).status_code == 200
    own = f"/jobs/{sent['id']}/cancel?now=true"
    assert "now: is for admins" in refused(ask("POST", own, send), 403)
    assert "now: is for admins" in refused(
        ask("POST", "/jobs/cancel?now=true", send, json={"names": [sent["id"]]}), 403
    )
    assert ask("POST", own, rule).status_code == 200
    (sent,) = ask("POST", "/jobs?user=ada", rule, **job).json()
    assert queries.job(past.store, sent["id"]).user == "ada"


def test_a_body_is_read_only_of_who_may_send_one(ask: Ask, token: Make) -> None:
    refused(
        ask("POST", "/jobs", token("viewer"), content=b"x" * 2**21, headers={"Content-Type": "text/yaml"}),
        403,
    )


def test_a_token_for_a_queue_sees_only_its_jobs(ask: Ask, token: Make, past: Past) -> None:
    mine = token("viewer", "papers")
    past.submit("hidden-66666", queue="secret")
    assert ids(ask("GET", "/jobs", mine)) == ["bad-22222"]
    assert ids(ask("GET", "/jobs?queue=default", mine)) == []
    assert ids(ask("GET", "/jobs?id=wait-55555&id=bad-22222", mine)) == ["bad-22222"]
    for path in ("", "/explain", "/events", "/logs"):
        assert refused(ask("GET", f"/jobs/hidden-66666{path}", mine), 404) == "there is no job 'hidden-66666'"
        assert "did you mean" not in refused(ask("GET", f"/jobs/hiden{path}", mine), 404)
    refused(ask("GET", "/jobs?after=wait-55555", mine), 404)
    assert ask("GET", "/jobs/b", mine).json()["id"] == "bad-22222"
    assert ids(ask("GET", "/instances", mine)) == []
    (machine,) = ask("GET", "/instances?all=true", mine).json()
    assert machine["jobs"] == ["bad-22222"]
    assert {row["subject"] for row in ask("GET", "/events", mine).json()} == {"bad-22222"}
    assert ask("GET", "/events?subject=wait-55555", mine).json() == []
    assert ask("GET", "/summary", mine).json()["jobs"] == {"failed": 1}
    for by, name in (("queue", "papers"), ("user", "bob"), ("job", "bad-22222")):
        (bill,) = ask("GET", f"/cost?by={by}", mine).json()
        assert (bill[by], bill["cost_usd"], bill["running_usd"]) == (name, 2.04, 0.0)
    refused(ask("GET", "/cost?by=day", mine), 403)


def test_what_ended_long_ago_is_in_the_bill_of_its_queue_and_hidden_from_others(
    ask: Ask, token: Make, past: Past
) -> None:
    mine, theirs = token("admin", "papers"), ["other"]
    bill = ask("GET", "/cost?by=job", mine).json()
    assert sum(roll_up(past.store, NOON, NOON)) > 0
    assert ask("GET", "/cost?by=job", mine).json() == bill
    assert [row["job"] for row in bill] == ["bad-22222"]
    assert pages.elsewhere(past.store, ["bad-22222", "word"], theirs) == {"bad-22222"}
    assert pages.elsewhere(past.store, ["bad-22222", "word"], ["papers"]) == set()
    assert ask("GET", "/jobs/bad-22222", token("viewer", "other")).json()["error"] == (
        "there is no job 'bad-22222'"
    )
    assert "longer ago than home.keep" in ask("GET", "/jobs/bad-22222", mine).json()["error"]


def test_a_token_for_a_queue_touches_only_its_jobs(ask: Ask, token: Make, past: Past) -> None:
    mine = token("admin", "papers")
    assert ask("POST", "/jobs", mine, json=in_queue("a", "papers")).status_code == 201
    both = [in_queue("b", "papers"), in_queue("c", "default")]
    said = refused(ask("POST", "/jobs", mine, json=both), 403)
    assert said == "queue: 'default': the token 'admin' is for papers only"
    after = in_queue("d", "papers")
    after["metadata"]["annotations"] = {"starburst.io/after-ok": "wait-55555"}
    said = refused(ask("POST", "/jobs", mine, json=after), 400)
    assert said == "job d: starburst.io/after-ok: there is no job 'wait-55555'"
    refused(ask("POST", "/jobs/wait-55555/cancel", mine), 404)
    assert [request.kind for request in past.store.requests(9)] == ["submit"]
    assert [row["name"] for row in ask("GET", "/jobs", mine).json()] == ["bad", "a"]


def test_a_token_ends_by_the_clock_or_by_hand(
    ask: Ask, token: Make, wall: Time, app_context: AppContext
) -> None:
    token("admin")
    short = token("viewer", expires_at=wall.now + 60)
    assert ask("GET", "/jobs", short).status_code == 200
    wall.now += 60
    assert refused(ask("GET", "/jobs", short), 401).startswith("this token is not known, or has expired")
    long = token("viewer", name="long")
    tokens.revoke(app_context.store, "long")
    refused(ask("GET", "/jobs", long), 401)


def test_pages_that_know_no_scope_are_for_who_sees_everything(
    app_context: AppContext, token: Make, wall: Time
) -> None:
    app = make_app(app_context, HttpConfig(), wall=wall)
    app.add_api_route("/open", lambda: "all of it", dependencies=[Depends(unscoped_viewer)])
    with TestClient(app, base_url=HERE) as client:
        assert client.get("/open").text == '"all of it"'
        whole, part = token("viewer"), token("admin", "papers")
        assert client.get("/open").status_code == 401
        assert client.get("/open", headers={"Authorization": f"Bearer {whole}"}).status_code == 200
        said = refused(client.get("/open", headers={"Authorization": f"Bearer {part}"}), 403)
        assert said == "the token 'admin' is for some queues only; this shows them all"


def test_its_use_is_noted_to_the_minute(ask: Ask, token: Make, wall: Time, app_context: AppContext) -> None:
    secret, began = token("viewer"), wall.now
    for pause, noted in ((0, began), (59, began), (2, began + 61)):
        wall.now += pause
        ask("GET", "/jobs", secret)
        (kept,) = tokens.listed(app_context.store)
        assert kept.last_used_at == noted


def test_names_that_lead_to_this_machine_may_be_somebody_elses(ask: Ask, token: Make) -> None:
    """DNS rebinding: a page of evil.example asks its own name, which has become 127.0.0.1."""
    for host, status in [("localhost:8585", 200), ("[::1]:8585", 200), ("127.9.9.9", 200)]:
        assert ask("GET", "/jobs", headers={"Host": host}).status_code == status
    for host in ("evil.example:8585", "127.0.0.1.evil.example", "", "[", "10.0.0.1"):
        assert refused(ask("GET", "/jobs", headers={"Host": host}), 403).startswith("the host ")
    secret = token("viewer")
    assert ask("GET", "/jobs", secret, headers={"Host": "starburst.example"}).status_code == 200


OTHERS = [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"}]
OTHERS += [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]


def test_pages_of_other_sites_change_nothing(ask: Ask, past: Past) -> None:
    for headers in OTHERS:
        refused(ask("POST", "/jobs/wait/cancel", headers=headers), 403)
        refused(ask("POST", "/jobs", json=in_queue("a", "default"), headers=headers), 403)
    assert past.store.requests(9) == []
    assert ask("POST", "/jobs/wait/cancel", headers={"Origin": HERE}).status_code == 200


def test_a_browser_is_led_to_the_form_and_gets_a_cookie_that_scripts_cannot_read(
    ask: Ask, token: Make
) -> None:
    secret = token("viewer")
    answer = ask("GET", "/jobs", headers={"Accept": "text/html,*/*"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert "<form" in ask("GET", "/login").text
    refused(ask("POST", "/login", data={"token": secret}, headers={"Origin": "https://evil.example"}), 403)
    assert ask("POST", "/login", data={"token": "guess"}).status_code == 401
    answer = ask("POST", "/login", data={"token": secret})
    assert (answer.status_code, answer.headers["location"].partition("#forms=")[0]) == (303, "/")
    (cookie, *flags) = answer.headers["set-cookie"].split("; ")
    assert cookie.startswith("starburst_session_8585=")
    assert secret not in cookie
    assert flags == ["HttpOnly", "Path=/", "SameSite=strict"]
    by_proxy = ask("POST", "/login", data={"token": secret}, headers={"X-Forwarded-Proto": "https"})
    assert by_proxy.headers["set-cookie"].endswith("; Secure")


class TestForms:
    """A session steers and submits by the forms of its own pages, as far as its token may."""

    @pytest.fixture
    def browser(self, app_context: AppContext, wall: Time) -> Iterator[TestClient]:
        app = make_app(app_context, HttpConfig(), wall=wall)
        with TestClient(app, base_url=HERE, follow_redirects=False) as client:
            yield client

    def login(self, browser: TestClient, secret: str) -> str:
        """Log in; the token of forms, which is in no page."""
        _, _, form_token = (
            browser.post("/login", data={"token": secret}).headers["location"].partition("#forms=")
        )
        assert len(form_token) == 64
        return form_token

    def buttons(self, browser: TestClient) -> str:
        return browser.get("/dashboard/jobs/wait-55555/actions").text

    def test_an_admin_holds_the_job_of_another_and_is_named(
        self, browser: TestClient, token: Make, past: Past
    ) -> None:
        form_token = self.login(browser, token("admin", name="ada"))
        assert form_token not in self.buttons(browser), "who has the cookie alone may press nothing"
        refused(browser.post("/dashboard/jobs/wait/steer", data={"verb": "hold", "form_token": ""}), 403)
        fields = {"verb": "hold", "form_token": form_token}
        assert (
            browser.post("/dashboard/jobs/wait/steer", data=fields).headers["location"] == "/jobs/wait-55555"
        )
        ((kind, by),) = [(request.kind, request.by) for request in past.store.requests(9)]
        assert (kind, by) == ("hold", "ada")
        assert browser.post("/api/v1/jobs/wait/cancel").status_code == 401, "a session is none for the API"

    def test_a_viewer_sees_no_buttons_and_may_press_none(
        self, browser: TestClient, token: Make, past: Past
    ) -> None:
        of_ada = self.login(browser, token("admin", name="ada"))
        of_bob = self.login(browser, token("viewer", name="bob"))
        assert "<button" not in self.buttons(browser)
        assert browser.get("/submit").status_code == 403
        for form_token in ("", of_ada, of_bob):
            fields = {"verb": "cancel", "form_token": form_token}
            refused(browser.post("/dashboard/jobs/wait/steer", data=fields), 403)
        assert past.store.requests(9) == []

    def test_a_submitter_steers_its_own_jobs_only(self, browser: TestClient, token: Make, past: Past) -> None:
        found = self.login(browser, token("submitter", name="carl"))
        assert "<button" not in self.buttons(browser)
        assert found not in browser.get("/submit").text
        fields = {"verb": "cancel", "form_token": found}
        assert browser.post("/dashboard/jobs/wait/steer", data=fields).status_code == 403
        assert past.store.requests(9) == []
        sent = {"command": "python train.py", "gpus": "1", "form_token": found}
        assert browser.post("/submit", data=sent).headers["location"].startswith("/jobs/train-")
        (submission,) = [request.submission for request in past.store.requests(9)]
        assert submission is not None
        assert (submission.job.user, submission.job.tasks[0].gpus) == ("carl", 1)

    def test_the_token_of_another_session_is_refused(
        self, browser: TestClient, token: Make, past: Past
    ) -> None:
        secret = token("admin", name="ada")
        old = self.login(browser, secret)
        assert self.login(browser, secret) != old
        said = refused(
            browser.post("/dashboard/jobs/wait/steer", data={"verb": "cancel", "form_token": old}), 403
        )
        assert said.startswith("this form is of a page from before")
        assert past.store.requests(9) == []


class TestLimits:
    @pytest.fixture
    def settings(self) -> HttpConfig:
        return HttpConfig(requests_per_second=2.0, streams=1)

    def test_a_burst_is_answered_then_as_many_as_come_in_a_second(
        self, ask: Ask, token: Make, clock: Time
    ) -> None:
        one, other = token("viewer"), token("viewer", name="other")
        assert [ask("GET", "/offers", one).status_code for _ in range(6)] == [200] * 4 + [429] * 2
        assert ask("GET", "/offers", other).status_code == 200
        clock.now += 0.5
        assert [ask("GET", "/offers", one).status_code for _ in range(2)] == [200, 429]
        said = refused(answer := ask("GET", "/offers", one), 429)
        assert said == "too many requests: wait 0.50 s; http.requests_per_second allows more"
        assert answer.headers["retry-after"] == "1"

    def test_guesses_count_by_address(self, ask: Ask, token: Make) -> None:
        secret = token("viewer")
        assert [ask("GET", "/jobs", "guess").status_code for _ in range(5)] == [401] * 4 + [429]
        assert ask("POST", "/login", data={"token": secret}).status_code == 429
        assert ask("GET", "/jobs", secret).status_code == 200


def test_on_a_kubernetes_a_submitter_has_what_config_and_token_say_and_an_admin_more(
    ask: Ask, token: Make, past: Past
) -> None:
    config = parse_config({"cluster": {"kind": "kubernetes"}, "cloud": {"offers": []}}, "c")
    past.store.set_fact("config", config.model_dump(mode="json"))
    job = in_queue("a", "default")
    job["metadata"]["annotations"] = {"starburst.io/cloud": "never"}
    spec = job["spec"]["template"]["spec"]
    spec["hostPID"] = True
    said = refused(ask("POST", "/jobs", token("submitter"), json=job), 400)
    assert "spec.template.spec.hostPID: true: is more than cluster.pod_security: restricted allows" in said
    scoped = token("admin", "default", name="of-a-queue")
    assert "hostPID" in refused(ask("POST", "/jobs?dry_run=true", scoped, json=job), 400)
    (sent,) = ask("POST", "/jobs", token("admin"), json=job).json()
    (request,) = past.store.requests(9)
    assert request.submission is not None
    assert (request.job_id, request.submission.workload.submitter) == (sent["id"], OWNER)
