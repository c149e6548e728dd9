"""The dashboard's queue where the cloud has no offers: no job leaves, as status and explain say."""

from __future__ import annotations

from starburst.app.config.http import HttpConfig
from starburst.core.model.events import OffersChanged
from starburst.web.app import make_app
from starburst.web.context import AppContext
from tests.cli.past import Past
from tests.web.conftest import HERE, TestClient


def test_nobody_is_said_to_leave_where_no_cloud_is(past: Past, app_context: AppContext) -> None:
    with TestClient(make_app(app_context, HttpConfig()), base_url=HERE) as browser:
        assert "leaves in 14 min" in browser.get("/dashboard/overview").text
        past.tell(OffersChanged(()))
        (row,) = browser.get("/api/v1/jobs?id=wait-55555").json()
        assert row["leaves_at"] is None
        page = browser.get("/dashboard/overview").text
    assert "wait-55555" in page
    assert "no deadline" in page
    assert "leaves in" not in page
