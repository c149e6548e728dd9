"""Links of the dashboard lead to pages that are there."""

from __future__ import annotations

import re
from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.core.model.events import NodesChanged, RunEnd, RunEnded
from starburst.domain.job import CloudChoice
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.listings import queries
from starburst.web.app import make_app
from starburst.web.context import AppContext
from tests.cli.past import Past
from tests.web.conftest import HERE, TestClient


def test_what_is_decided_of_the_cluster_is_of_no_job(past: Past, home: Path) -> None:
    past.end("train-44444")
    for n in range(5):
        past.submit(f"job-{n}", cloud=CloudChoice.NEVER)
        past.tell(RunEnded(f"job-{n}", 1, RunEnd.NOT_STARTED, message="a webhook is down", outage=True))
    assert "refusing" in {row.kind for row in queries.decisions(past.store, "cluster")}
    app = make_app(AppContext(Home(home), past.store), HttpConfig())
    with TestClient(app, base_url=HERE) as browser:
        assert "/jobs/cluster" not in browser.get("/decisions").text


def test_nodes_and_jobs_may_have_names_like_those_of_machines(home: Path, past: Past) -> None:
    """AWS names nodes by their instances, if it is asked to."""
    node = "i-0123456789abcdef0.us-west-2.compute.internal"
    past.tell(NodesChanged((Node(node, Resources.of(4, 64, 256, "V100")),)))
    past.submit("i-robot-11111")
    past.start("i-robot-11111")
    past.submit("away-22222", cloud=CloudChoice.ONLY)
    machine = next(iter(past.scheduler.state.fleet.instances))
    past.ready(machine)
    past.start("away-22222")
    app = make_app(AppContext(Home(home), past.store), HttpConfig())
    with TestClient(app, base_url=HERE) as browser:
        seen = {"/"}
        for page in ("/", "/decisions", "/jobs", "/jobs/i-robot-11111", "/jobs/away-22222"):
            seen.update(re.findall('href="(/[^"#]*)"', browser.get(page).text))
        assert {f"/nodes/{node}", f"/machines/{machine}", "/jobs/i-robot-11111"} <= seen
        lost = [path for path in sorted(seen) if browser.get(path.replace("&amp;", "&")).status_code != 200]
    assert lost == []
