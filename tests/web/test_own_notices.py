"""News for the browser are of one's own jobs only, for those who may see the dashboard."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest

from starburst.app.config.http import HttpConfig
from starburst.store.listings import queries
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.dashboard import own_notices
from tests.web.conftest import HERE, Time

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would have another client than ours
    from starlette.testclient import TestClient

Make = Callable[..., str]


@pytest.fixture
def client(app_context: AppContext, wall: Time) -> Iterator[TestClient]:
    app = make_app(app_context, HttpConfig(), wall=wall)
    with TestClient(app, base_url=HERE) as made:
        yield made


def news(client: TestClient, token: str = "", after: int | None = 0) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = client.get(
        "/dashboard/notices", params={} if after is None else {"after": after}, headers=headers
    )
    assert answer.status_code == 200
    found: dict[str, object] = answer.json()
    return found


def test_each_token_hears_of_jobs_of_its_own_name(
    client: TestClient, token: Make, app_context: AppContext
) -> None:
    ends = {row.id: row.user for row in queries.jobs(app_context.store) if row.ended_at is not None}
    assert len(set(ends.values())) > 1, "jobs of several users have ended"
    for user in set(ends.values()):
        mine = news(client, token("viewer", name=user))["news"]
        told = {one["job"] for one in mine if one["kind"] in ("succeeded", "failed", "cancelled")}
        assert told == {job for job, whose in ends.items() if whose == user}
    assert news(client, token("admin", name="root"))["news"] == [], "not even an admin hears of others'"


def test_without_tokens_it_is_the_account_of_the_scheduler(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_notices, "this_user", lambda: "ada")
    first = news(client, after=None)
    assert first["news"] == [], "what was is no news"
    head = first["head"]
    assert isinstance(head, int)
    assert news(client, after=head) == first
    assert news(client, after=head + 100) == first, "a log that was restored from a backup is shorter"
    assert news(client)["news"]


def test_who_may_not_see_the_dashboard_hears_nothing(client: TestClient, token: Make) -> None:
    scoped = token("viewer", "papers", name="bob")
    for path in ("/dashboard/notices", "/what-if", "/dashboard/budget"):
        assert client.get(path).status_code in (303, 401)
        assert client.get(path, headers={"Authorization": f"Bearer {scoped}"}).status_code == 403
