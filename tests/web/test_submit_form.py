"""The form that submits: where it leads to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from starburst.app.config.http import HttpConfig
from starburst.store import cron_jobs
from starburst.store.store import Store
from starburst.web.app import make_app
from starburst.web.context import AppContext
from tests.cli.manifests import manifest
from tests.web.conftest import HERE, TestClient

CRON_JOB = (Path(__file__).parents[2] / "configs" / "examples" / "cron-job.yaml").read_text()


def submitted(app_context: AppContext, text: str, field: str = "manifest") -> tuple[int, str, str]:
    """Status, address and text of the answer to a manifest or command."""
    with TestClient(make_app(app_context, HttpConfig()), base_url=HERE, follow_redirects=False) as browser:
        page = browser.get("/submit").text
        form_token = page.partition('name="form_token" value="')[2].partition('"')[0]
        told = browser.post("/submit", data={field: text, "form_token": form_token})
    return told.status_code, told.headers.get("location", ""), told.text


def asked(store: Store) -> list[str]:
    return [request.job_id for request in store.requests(9)]


def test_one_job_leads_to_its_page_and_several_to_their_list(app_context: AppContext) -> None:
    status, address, _ = submitted(app_context, manifest("one", "true"))
    assert (status, address) == (303, f"/jobs/{asked(app_context.store)[0]}")
    both = {"kind": "List", "items": [json.loads(manifest(name, "true")) for name in ("pair-a", "pair-b")]}
    assert submitted(app_context, json.dumps(both))[:2] == (303, "/jobs?q=pair")


def test_a_cron_job_which_has_no_page_is_named(app_context: AppContext) -> None:
    status, _, text = submitted(app_context, CRON_JOB)
    (cron_job,) = cron_jobs.every(app_context.store)
    assert status == 200
    assert f"cronjob/{cron_job.id}; starburst cronjobs lists CronJobs" in text
    status, _, text = submitted(app_context, f"{manifest('once', 'true')}\n---\n{CRON_JOB}")
    assert (status, " and 1 job; starburst cronjobs" in text) == (200, True)


@pytest.mark.parametrize("command", ['""', "' ' x", "'open"])
def test_a_command_without_a_program_is_refused(app_context: AppContext, command: str) -> None:
    status, _, text = submitted(app_context, command, "command")
    assert (status, "command: " in text) == (400, True)
    assert asked(app_context.store) == []
