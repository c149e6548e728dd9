"""Runs say how far they are, with a token that is good for nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from starburst.app.config.http import HttpConfig
from starburst.bus.hints import ThroughputHint
from starburst.core.model.events import RunEnd, RunEnded
from starburst.store.report_tokens import REPORT_PREFIX, make_report_key, report_token
from starburst.store.store import Store
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.serving.listen import refuse_insecure_bind
from tests.cli.past import Past
from tests.web.conftest import API, Ask, TestClient
from tests.web.test_api import refused
from tests.web.test_gate import OTHERS, READS

Make = Callable[..., str]
HALF = {"done": 5, "total": 10, "per_s": 0.5}
TRAIN = "/jobs/train-44444/attempts/1/progress"


@pytest.fixture
def of(app_context: AppContext) -> Callable[[str], str]:
    """The token of a job's runs."""
    key = make_report_key(app_context.store)
    return lambda job: report_token(key, job)


@pytest.fixture
def heard(app_context: AppContext) -> Callable[[], list[ThroughputHint]]:
    """What the scheduler will hear."""
    return lambda: list(app_context.inbox._said.values())


def test_a_run_reports_on_its_job(
    ask: Ask, of: Callable[[str], str], heard: Callable[[], list[ThroughputHint]]
) -> None:
    assert ask("PUT", TRAIN, of("train-44444"), json=HALF).status_code == 204
    assert heard() == [ThroughputHint(job="train-44444", attempt=1, done=5, total=10, per_s=0.5)]
    answer = ask("PUT", TRAIN, of("train-44444"), json={**HALF, "total": None, "rank": 3})
    assert (answer.status_code, answer.content) == (204, b"")
    assert [said.rank for said in heard()] == [0, 3]


def test_its_token_opens_nothing_else(ask: Ask, of: Callable[[str], str], token: Make, past: Past) -> None:
    secret = of("train-44444")
    for situation in ("this machine needs no token", "somebody has one"):
        for path in ["/jobs/train-44444", *READS]:
            refused(ask("GET", path, secret), 401)
        for what in ("cancel", "hold", "release", "requeue"):
            refused(ask("POST", f"/jobs/train-44444/{what}", secret), 401)
        refused(ask("PUT", "/jobs/render-33333/attempts/1/progress", secret, json=HALF), 401)
        refused(ask("PUT", "/jobs/train/attempts/1/progress", secret, json=HALF), 401)
        refused(ask("PUT", TRAIN, of("train-4444"), json=HALF), 401)
        refused(ask("PUT", TRAIN, secret[:-1], json=HALF), 401)
        token("viewer", name=situation)
    assert past.store.requests(9) == []
    assert ask("PUT", TRAIN, secret, json=HALF).status_code == 204


def test_there_are_no_such_tokens_before_there_is_a_key(ask: Ask, app_context: AppContext) -> None:
    refused(ask("PUT", TRAIN, REPORT_PREFIX, json=HALF), 401)
    key = make_report_key(app_context.store)
    assert make_report_key(app_context.store) == key
    assert ask("PUT", TRAIN, report_token(key, "train-44444"), json=HALF).status_code == 204


def test_who_may_cancel_a_job_may_report_on_it(ask: Ask, token: Make, past: Past) -> None:
    by_name = "/jobs/train/attempts/current/progress"
    ada, bob = token("submitter", name="ada"), token("submitter", name="bob")
    for path in (TRAIN, by_name):
        assert ask("PUT", path, ada, json=HALF).status_code == 204
        assert ask("PUT", path, token("admin", name=path), json=HALF).status_code == 204
        said = refused(ask("PUT", path, bob, json=HALF), 403)
        assert said == "job train-44444 is ada's; the submitter 'bob' may not report on it"
    refused(ask("PUT", TRAIN, token("viewer"), json=HALF), 403)
    refused(ask("PUT", TRAIN, token("admin", "papers"), json=HALF), 404)
    refused(ask("PUT", TRAIN, json=HALF), 401)
    past.submit("train-66666", 2)
    past.end("train-44444")
    past.start("train-66666")
    assert ask("PUT", by_name, ada, json=HALF).status_code == 204, "of two that are called so one runs"


def test_what_is_late_is_told_to_stop_and_what_is_early_to_wait(
    ask: Ask, of: Callable[[str], str], past: Past, heard: Callable[[], list[ThroughputHint]]
) -> None:
    assert refused(ask("PUT", "/jobs/done-11111/attempts/1/progress", of("done-11111"), json=HALF), 410) == (
        "attempt 1 of job done-11111 is over; report no more of it"
    )
    said = refused(ask("PUT", "/jobs/wait-55555/attempts/1/progress", of("wait-55555"), json=HALF), 404)
    assert said == "job wait-55555 has no attempt 1 yet; its last one is 0"
    refused(ask("PUT", "/jobs/wait-55555/attempts/current/progress", of("wait-55555"), json=HALF), 410)
    refused(ask("PUT", "/jobs/gone-66666/attempts/1/progress", of("gone-66666"), json=HALF), 404)
    past.tell(RunEnded("train-44444", 1, RunEnd.DISPLACED))
    assert past.scheduler.state.jobs["train-44444"].attempt == 2
    refused(ask("PUT", TRAIN, of("train-44444"), json=HALF), 410)
    assert heard() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "body: invalid JSON"),
        (b"[]", "body: input should be an object"),
        (b"\xff", "body: invalid JSON"),
        (b'{"done": 1, "total": NaN, "per_s": 1}', "total: "),
        (json.dumps({**HALF, "done": -1}), "done: input should be greater than or equal to 0"),
        (json.dumps({**HALF, "done": "5"}), "done: input should be a valid number"),
        (json.dumps({**HALF, "per_s": 0}), "per_s: input should be greater than 0"),
        (json.dumps({**HALF, "job": "render-33333"}), "job: extra inputs are not permitted"),
        (json.dumps({"done": 1, "per_s": 1}), "total: field required"),
    ],
)
def test_what_has_another_shape_is_refused(
    ask: Ask,
    of: Callable[[str], str],
    heard: Callable[[], list[ThroughputHint]],
    body: bytes,
    said: str,
) -> None:
    assert refused(ask("PUT", TRAIN, of("train-44444"), content=body), 400).startswith(said)
    refused(ask("PUT", TRAIN, of("train-44444"), content=b" " * 5000), 413)
    refused(ask("PUT", "/jobs/train-44444/attempts/0/progress", of("train-44444"), json=HALF), 400)
    assert heard() == []


def test_pages_of_other_sites_report_nothing(ask: Ask, of: Callable[[str], str]) -> None:
    for headers in OTHERS:
        refused(ask("PUT", TRAIN, of("train-44444"), json=HALF, headers=headers), 403)


def test_a_report_writes_nothing(ask: Ask, of: Callable[[str], str], app_context: AppContext) -> None:
    secret = of("train-44444")
    with Store.open(app_context.home.database) as watching:
        before = watching.data_version()
        for done in range(10):
            assert ask("PUT", TRAIN, secret, json={**HALF, "done": done}).status_code == 204
        assert watching.data_version() == before
        make = ask("POST", "/jobs/wait/hold")
        assert make.status_code == 200
        assert watching.data_version() != before, "as anything would that is written"


def test_at_an_address_that_others_reach_runs_may_report_before_there_is_any_other_token(
    app_context: AppContext, of: Callable[[str], str]
) -> None:
    settings = HttpConfig(host="0.0.0.0", report_url="http://starburst.example.org:8585")
    refuse_insecure_bind(app_context, settings)
    app = make_app(app_context, settings)
    with TestClient(app, base_url="http://starburst.example.org:8585", follow_redirects=False) as client:
        for path in ("/", "/metrics", *(f"{API}{path}" for path in READS)):
            assert client.get(path).status_code == 401
        headers = {"Authorization": f"Bearer {of('train-44444')}"}
        assert client.put(f"{API}{TRAIN}", json=HALF, headers=headers).status_code == 204
        assert client.get(f"{API}/jobs", headers=headers).status_code == 401


class TestLimits:
    @pytest.fixture
    def settings(self) -> HttpConfig:
        return HttpConfig(requests_per_second=1.0)

    def test_each_job_has_so_many_and_guesses_count_by_address(
        self, ask: Ask, of: Callable[[str], str]
    ) -> None:
        mine, other = of("train-44444"), of("render-33333")
        assert [ask("PUT", TRAIN, mine, json=HALF).status_code for _ in range(3)] == [204, 204, 429]
        there = "/jobs/render-33333/attempts/1/progress"
        assert ask("PUT", there, other, json=HALF).status_code == 204
        assert [ask("PUT", there, mine, json=HALF).status_code for _ in range(3)] == [401, 401, 429]
