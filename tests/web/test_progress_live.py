"""A whole Starburst: a run says over HTTP how far it is, and `explain` says when it will end."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest

from starburst.app.config import parse_config
from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.app.daemon.progress_inbox import ProgressInbox
from starburst.app.wiring.build import build
from starburst.store.listings import queries
from starburst.store.report_tokens import make_report_key, report_token
from starburst.store.store import Store
from starburst.web.context import AppContext
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving
from tests.bus.test_live import until
from tests.cli.manifests import manifest

#: It learns from a file where to report, as ports and ids are not known before it is submitted.
LOOP = """
import itertools, os, sys, time
from starburst import iterator
iterator.WINDOW_S = 0.05
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.environ["STARBURST_REPORT"], os.environ["STARBURST_REPORT_TOKEN"] = open(sys.argv[1]).read().split()
for _ in iterator.watch(itertools.repeat(0, 10**6), total=10**6):
    time.sleep(0.001)
"""


@pytest.mark.processes
def test_what_a_run_says_is_in_its_explanation(tmp_path: Path) -> None:
    home, where, settings = Home(tmp_path / "home"), tmp_path / "where", HttpConfig(port=0)
    home.make()

    async def main(store: Store, users: Store, url: str, inbox: ProgressInbox) -> str:
        config = parse_config({"debug": {"validate": True}}, "test")
        controller = build(home, config, store, inbox=inbox)
        stop = asyncio.Event()
        task = asyncio.create_task(controller.run(stop))
        async with httpx.AsyncClient(base_url=f"{url}/api/v1") as client:
            body = json.loads(manifest("train", sys.executable, "-c", LOOP, str(where)))
            (job,) = (await client.post("/jobs", json=body)).json()
            path = f"/jobs/{job['id']}"
            await until(lambda: [row.phase for row in queries.jobs(users)] == ["running"], task)
            before = (await client.get(f"{path}/explain")).json()["explanation"]
            token = report_token(make_report_key(users), job["id"])
            staging = tmp_path / "staging"
            staging.write_text(f"{url}/api/v1{path}/attempts/1/progress {token}")
            staging.rename(where)
            await until(lambda: any(row.kind == "Progress" for row in queries.events(users)), task)
            after: str = (await client.get(f"{path}/explain")).json()["explanation"]
            await client.post(f"{path}/cancel")
            await until(lambda: [row.phase for row in queries.jobs(users)] == ["cancelled"], task)
        stop.set()
        await task
        assert "by its own account" not in before
        return after

    inbox = ProgressInbox()
    with (
        Store.open(home.database) as store,
        Store.open(home.database) as users,
        Store.open(home.database) as answers,
        listening(settings) as sock,
    ):
        assert sock is not None
        with serving(AppContext(home, answers, inbox), settings, sock) as url:
            after = asyncio.run(asyncio.wait_for(main(store, users, url, inbox), 30))
    assert "and by its own account until about " in after
