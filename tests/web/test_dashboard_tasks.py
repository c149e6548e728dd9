"""Ten tasks of an operator and of a user, done in a browser by what is written on the page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from starburst.core.model.events import RunEnd, RunEnded
from starburst.runs.attempt_dir import log_path
from starburst.store.listings import queries
from starburst.store.listings.row_types import JobRow
from starburst.web.dashboard import own_notices
from tests.web.place import Place, place

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def noon(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("tasks"), chromium) as it:
        yield it


def first(noon: Place, phase: str) -> JobRow:
    """The first job in a phase of which nothing was asked yet."""
    store = noon.lively.app_context.store
    asked = {request.job_id for request in store.requests(100)}
    return next(row for row in queries.jobs(store, phases=(phase,)) if row.id not in asked)


def running(noon: Place) -> list[JobRow]:
    return queries.jobs(noon.lively.app_context.store, phases=("running",))


def asked_of(noon: Place, job: str) -> list[tuple[str, str]]:
    """What the scheduler is asked of a job, and who asks."""
    requests = noon.lively.app_context.store.requests(100)
    return [(request.kind, request.by) for request in requests if request.job_id == job]


def heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_contain_text(text)


def test_cancel_a_job_that_runs(noon: Place) -> None:
    job = first(noon, "running")
    with noon.page(f"/jobs/{job.id}") as page:
        page.get_by_text("Cancel…").click()
        page.get_by_role("button", name="Cancel the job").click()
        heading(page, job.id)
        ((kind, by),) = asked_of(noon, job.id)
    assert kind == "cancel"
    assert by, "it is known who asked"


@pytest.mark.parametrize(("phase", "verb"), [("queued", "hold"), ("running", "requeue")])
def test_hold_a_job_that_waits_and_queue_one_that_runs_again(noon: Place, phase: str, verb: str) -> None:
    job = first(noon, phase)
    with noon.page(f"/jobs/{job.id}") as page:
        page.get_by_role("group", name="Actions").get_by_role("button", name=verb.capitalize()).click()
        heading(page, job.id)
    assert [kind for kind, _ in asked_of(noon, job.id)] == [verb]


def test_a_job_that_is_over_can_be_asked_nothing(noon: Place) -> None:
    with noon.page(f"/jobs/{first(noon, 'succeeded').id}") as page:
        expect(page.get_by_role("heading", name="Log")).to_be_visible()
        expect(page.get_by_role("group", name="Actions").get_by_role("button")).to_have_count(0)


def test_read_the_log_of_a_job_as_it_is_written(noon: Place) -> None:
    job = first(noon, "running")
    home = noon.lively.app_context.home
    path = log_path(home.cluster if job.site == "cluster" else home.cloud / "runs", job.id, job.attempt, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("epoch 1\n<b>2</b>\n")
    with noon.page(f"/jobs/{job.id}") as page:
        log = page.get_by_role("region", name="Log")
        expect(log).to_contain_text("epoch 1\n<b>2</b>")
        with path.open("a") as more:
            more.write("epoch 3\n")
        expect(log).to_contain_text("epoch 3")
        expect(log).to_contain_text("live")


def test_submit_a_manifest(noon: Place) -> None:
    manifest = """
apiVersion: batch/v1
kind: Job
metadata: {name: from-the-form}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: a, command: ["true"]}]}}}
"""
    with noon.page() as page:
        page.get_by_role("link", name="Submit").click()
        page.get_by_role("textbox", name="Manifest of a Job").fill(manifest)
        page.get_by_role("button", name="Submit the file").click()
        heading(page, "from-the-form-")


def test_submit_a_command_with_a_gpu_and_mend_a_mistake(noon: Place) -> None:
    with noon.page(
        "/submit",
    ) as page:
        page.get_by_role("textbox", name="Command").fill("python train.py")
        page.get_by_label("GPUs").fill("many of them")
        noon.expect_refusal(page, lambda: page.get_by_role("button", name="Submit the command").click())
        expect(page.get_by_role("alert")).to_contain_text("gpus: 'many of them'")
        expect(page.get_by_role("textbox", name="Command")).to_have_value("python train.py")
        page.get_by_label("GPUs").fill("1")
        page.get_by_role("button", name="Submit the command").click()
        heading(page, "train-")
        expect(page.get_by_text("1 GPU", exact=False).first).to_be_visible()


def test_find_the_jobs_of_a_user_and_sort_them(noon: Place) -> None:
    job = first(noon, "succeeded")
    with noon.page(f"/jobs/{job.id}") as page:
        page.get_by_role("link", name=job.user, exact=True).click()
        heading(page, f"User {job.user}")
        page.get_by_role("link", name="sort, more").click()
        page.get_by_role("columnheader", name="Bill").get_by_role("link").click()
        expect(page.get_by_role("columnheader", name="Bill")).to_have_attribute("aria-sort", "descending")
        bills = [row.cloud_micro_usd for row in queries.jobs(noon.lively.app_context.store, user=job.user)]
        top = page.get_by_role("row").nth(1)
        assert f"{max(bills) / 1e6:,.2f}" in top.inner_text()


def test_see_what_failed_in_a_queue(noon: Place) -> None:
    job = first(noon, "failed")
    with noon.page(f"/jobs?queue={job.queue}") as page:
        page.get_by_role("navigation", name="Jobs by phase").get_by_role("link", name="failed").click()
        expect(page.get_by_role("link", name=job.id)).to_be_in_viewport()
        assert "phase=failed" in page.url
        page.reload()
        expect(page.get_by_role("link", name=job.id)).to_be_visible()


def test_see_what_runs_on_a_node_and_what_a_machine_cost(noon: Place) -> None:
    with noon.page() as page:
        node = noon.lively.scheduler.state.capacity.nodes[0].name
        page.get_by_role("heading", name=node).get_by_role("link").click()
        heading(page, node)
        expect(page.get_by_text("GPUs in use")).to_be_visible()
    machine = queries.instance_records(noon.lively.app_context.store, include_ended=True)[0]
    with noon.page(f"/machines/{machine.id}") as page:
        heading(page, machine.id)
        expect(page.get_by_text(machine.offer.title, exact=True)).to_be_visible()
        expect(page.get_by_role("heading", name="Decisions")).to_be_visible()


def test_go_back_through_the_decision_log(noon: Place) -> None:
    with noon.page("/decisions") as page:
        newest = page.get_by_role("listitem").first.inner_text()
        page.get_by_role("link", name="older").click()
        assert page.get_by_role("listitem").first.inner_text() != newest
        page.get_by_role("link", name="newest").click()
        assert page.get_by_role("listitem").first.inner_text() == newest


def test_try_another_wait_budget_on_ones_own_past(noon: Place) -> None:
    with noon.page() as page:
        page.get_by_role("link", name="What if").click()
        heading(page, "What if the wait budget P were different")
        slider, told = page.get_by_role("slider", name="P"), page.get_by_role("status", name="")
        expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^25 %: \$"))
        expect(page.get_by_role("row", name="25 %").get_by_text("present P")).to_be_visible()
        slider.press("Home")
        expect(slider).to_have_attribute(
            "aria-valuetext", re.compile(r"^No-Wait: \$[\d,.]+ in the cloud, 0 % less")
        )
        slider.press("ArrowRight")
        expect(told.filter(has_text="5 %: $")).to_be_visible()


#: A browser's notifications, as a page sees them; those of a headless one go nowhere.
NOTIFICATION = """
window.shown = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (Notification.permission = "granted"); }
  constructor(title, { body }) {
    document.documentElement.dataset.shown = window.shown.push(`${title}: ${body}`);
  }
};
"""


def test_be_notified_of_the_end_of_ones_own_jobs_once_that_was_asked_for(
    noon: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = first(noon, "running")
    other = next(row for row in running(noon) if row.user != job.user)
    monkeypatch.setattr(own_notices, "this_user", lambda: job.user)
    with noon.page("/submit") as page:
        page.clock.install()
        page.add_init_script(NOTIFICATION)
        page.reload()
        bell = page.get_by_role("button", name="Notify me")
        assert page.evaluate("Notification.permission") == "default", (
            "permission was asked for without a click"
        )
        with page.expect_response("**/dashboard/notices"):
            bell.click()
        expect(bell).to_have_attribute("aria-pressed", "true")
        noon.lively.tell(*(RunEnded(one.id, one.attempt, RunEnd.EXITED, 0) for one in (other, job)))
        with page.expect_response("**/dashboard/notices?after=*"):
            page.clock.fast_forward(11_000)
        expect(page.locator("html")).to_have_attribute("data-shown", "1")  # the pages' policy forbids eval
        (shown,) = page.evaluate("shown")
        assert shown.startswith(f"{job.id} succeeded: finished after")
        bell.click()
        expect(bell).to_have_attribute("aria-pressed", "false")


def test_a_form_of_another_page_is_refused(noon: Place) -> None:
    job = first(noon, "queued")
    address = f"{noon.url}/dashboard/jobs/{job.id}/steer"
    assert httpx.post(address, data={"verb": "cancel"}).status_code == 403
    assert httpx.post(address, data={"verb": "cancel", "form_token": "guess"}).status_code == 403
    foreign = {"Origin": "http://evil.example"}
    assert httpx.post(address, data={"verb": "cancel"}, headers=foreign).status_code == 403
    assert asked_of(noon, job.id) == []
