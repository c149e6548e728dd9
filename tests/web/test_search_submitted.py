"""The overview's search finds and counts jobs that no scheduler has taken up, as while it is down."""

from __future__ import annotations

import json
import re

from starburst.app.config.http import HttpConfig
from starburst.web.app import make_app
from starburst.web.context import AppContext
from tests.cli.manifests import manifest
from tests.web.conftest import HERE, TestClient


def test_all_of_them_are_searched_not_the_newest_alone(app_context: AppContext) -> None:
    with TestClient(make_app(app_context, HttpConfig()), base_url=HERE) as browser:
        for text in (manifest("first", "true"), manifest("sweep", "true", array="0-149")):
            assert browser.post("/api/v1/jobs", json=json.loads(text)).status_code == 201

        def found(path: str) -> str:
            page = browser.get(path).text
            (heading,) = re.findall('<h2 id="h-jobs">(.*?)</h2>', page, re.DOTALL)
            return heading

        assert "“first”: 1" in found("/?q=first")
        assert "“sweep”: newest 80 of 150 · " in found("/?q=sweep")
        assert "newest 80 of 150 submitted" in found("/?q=sweep&phase=submitted")
        assert "sort, more" in found("/?q=sweep")
        assert "sort, more" not in found("/?phase=submitted")  # that list is of jobs that were taken up
