"""The dashboard in a real browser: what it shows, that it stays true, keys, phones, colours, safety, size."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from starburst.app.config.http import HttpConfig
from starburst.domain.job import Phase
from starburst.store.listings import dashboard_queries, queries
from starburst.web.app import make_app
from tests.builders import job
from tests.web.lively import CAPS, NOON, Lively
from tests.web.place import CONTRAST, DESK, PHONE, Place, place
from tests.web.serving import serving

pytestmark = pytest.mark.browser

LAPTOP: Any = {"width": 1400, "height": 900}
IMAGES = Path(__file__).parents[2] / "docs" / "img"


@pytest.fixture(scope="module")
def noon(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Place]:
    """A morning that no test changes. At its end: no error was logged, and no other host was asked."""
    with place(tmp_path_factory.mktemp("noon"), chromium) as it:
        yield it


def test_the_page_shows_who_waits_and_how_much_of_the_wait_is_over(noon: Place) -> None:
    with noon.lively.app_context.store.read() as conn:
        waiters = dashboard_queries.queued_jobs(conn, 40)
    with noon.page() as page:
        rows = page.locator(".waiter")
        expect(rows).to_have_count(len(waiters))
        for waiter, row in zip(waiters, rows.all(), strict=True):
            assert row.locator(".name").inner_text() == waiter.row.id
            fill, track = (row.locator(f"svg .{kind}").bounding_box() for kind in ("fill", "track"))
            assert track is not None
            deadline = waiter.row.deadline
            share = 0 if deadline is None else (NOON - waiter.queued_at) / (deadline - waiter.queued_at)
            width = 0 if fill is None else fill["width"]
            assert width / track["width"] == pytest.approx(share, abs=0.02)
        assert any(w.row.deadline is not None for w in waiters)


def test_every_gpu_is_a_cell_in_the_colour_of_its_job(noon: Place) -> None:
    core = noon.lively.scheduler
    with noon.page() as page:
        nodes = page.locator('[data-part="cluster"] .box')
        assert nodes.count() == len(core.state.capacity.nodes)
        for node, box in zip(core.state.capacity.nodes, nodes.all(), strict=True):
            assert box.locator(".gpu").count() == node.capacity.gpus
            held = sum(
                slot.resources.gpus
                for record in core.state.jobs.values()
                for slot in (record.slots if record.alive else ())
                if slot.where == node.name
            )
            assert box.locator("a.gpu").count() == held
            colours = {dot.get_attribute("class") for dot in box.locator(".who .dot").all()}
            assert len(colours) == box.locator(".who").count()  # neighbours can be told apart
        machines = page.locator('[data-part="cloud"] .box')
        assert machines.count() == len(core.state.fleet.instances) > 0
        some = next(r for r in core.state.jobs.values() if r.phase is Phase.RUNNING and r.job.resources.gpus)
        cell = page.locator(f'a.gpu[href="/jobs/{some.id}"]').first
        dot = page.locator(f'.who[href="/jobs/{some.id}"] .dot').first
        colour = "getComputedStyle(arguments[0]).backgroundColor".replace("arguments[0]", "node")
        assert cell.evaluate(f"node => {colour}") == dot.evaluate(f"node => {colour}")


def test_the_figures_are_the_stores(noon: Place) -> None:
    core = noon.lively.scheduler
    rate = sum(m.rate.micro_usd for m in core.state.fleet.instances.values()) / 1e6
    with noon.page() as page:
        figures = page.locator(".figure")
        expect(figures.nth(0)).to_contain_text(f"${rate:.2f}/h")
        expect(figures.nth(0)).to_contain_text("of at most $184.50/h")
        today = sum(m.cost(NOON).micro_usd for m in core.state.fleet.instances.values())
        expect(figures.nth(1)).to_contain_text(f"${(today + core.state.fleet.settled.micro_usd) / 1e6:.2f}")
        expect(figures.nth(1)).to_contain_text("than No-Wait")
        expect(figures.nth(2)).to_contain_text("P is 25 %")
        busy = 28 - sum(core.state.capacity.free(f"gpu-{n}").gpus for n in range(1, 5))
        expect(figures.nth(3)).to_contain_text(f"{busy} of 28")
        counts = queries.summary(noon.lively.app_context.store).jobs
        for phase, count in counts.items():
            expect(page.locator(f".phases a.{phase} b")).to_have_text(str(count))


def test_the_bill_of_a_job_that_runs_is_its_share_so_far(noon: Place) -> None:
    machines = noon.lively.scheduler.state.fleet.instances.values()
    owed = {job_id: micro / 1e6 for m in machines for job_id, micro in m.shares(NOON).items()}
    came_home = {row.id: row.cloud_micro_usd / 1e6 for row in queries.jobs(noon.lively.app_context.store)}
    with noon.page("/?phase=running") as page:
        for row in page.locator('[data-part="jobs"] .row').all():
            bill, name = row.locator(".bill").inner_text(), row.locator(".name").inner_text()
            settled = f"${came_home[name]:.2f}" if came_home[name] else ""
            assert bill == (f"${owed[name]:.2f}…" if name in owed else settled)


def test_the_gantt_of_a_job_that_came_home_has_queue_machine_and_node(noon: Place) -> None:
    store = noon.lively.app_context.store
    home = next(d.subject for d in queries.decisions(store) if d.kind == "returning")
    starts = [str(d.numbers["where"]) for d in queries.decisions(store, home) if d.kind == "started"]
    with noon.page(f"/jobs/{home}") as page:
        assert page.locator(".lane").all_inner_texts() == ["queue", *starts]
        boxes = [bar.bounding_box() for bar in page.locator("rect.span").all()]
        assert len(boxes) >= 4
        for left, right in pairwise(boxes):
            assert left is not None
            assert right is not None
            assert left["x"] + left["width"] <= right["x"] + 6  # one after the other, a hair's width at least


def test_news_come_in_without_a_reload(tmp_path: Path, chromium: Browser) -> None:
    with place(tmp_path, chromium, 30) as it, it.page() as page:
        page.evaluate("window.sameWindow = true")
        page.locator("#q").fill("no such job")
        expect(page.locator('[data-part="jobs"]')).to_contain_text("No job matches.")
        it.lively.submit(job("fresh-00001", 8, user="eve"))
        it.lively.cut_off()
        expect(page.locator(".log li").nth(1)).to_contain_text("fresh-00001")
        expect(page.locator(".alert")).to_contain_text("1 rented machine does not answer")
        expect(page.locator(".box.trouble").last).to_contain_text("does not answer")
        page.locator("#q").fill("fresh eve")
        expect(page.locator('[data-part="jobs"] .row')).to_have_count(1)
        assert page.evaluate("window.sameWindow")
        assert page.locator("#q").input_value() == "fresh eve"


def test_keys_go_through_the_jobs_open_one_search_and_help(noon: Place) -> None:
    with noon.page() as page:
        names = page.locator(".row .name").all_inner_texts()
        selected = page.locator(".row.selected .name")
        page.keyboard.press("j")
        page.keyboard.press("j")
        expect(selected).to_have_text(names[1])
        page.keyboard.press("k")
        expect(selected).to_have_text(names[0])
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text(names[0])
        page.keyboard.press("Escape")
        expect(page).to_have_url(f"{noon.url}/")
        page.keyboard.press("/")
        page.keyboard.type("train-gpt")
        expect(page.locator('[data-part="jobs"] h2')).to_contain_text("“train-gpt”")
        shown = page.locator('[data-part="jobs"] .name').all_inner_texts()
        assert shown
        assert all("train-gpt" in name for name in shown)
        expect(page).to_have_url(re.compile(r"/\?q=train-gpt$"))
        page.keyboard.press("Escape")
        expect(page.locator("#q")).to_have_value("")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#help")).to_be_hidden()


def test_a_phase_is_chosen_with_a_click_and_taken_back_with_the_back_key(noon: Place) -> None:
    failed = [row.id for row in queries.jobs(noon.lively.app_context.store, phases=("failed",))]
    with noon.page() as page:
        page.locator(".phases a.failed").click()
        expect(page.locator('[data-part="jobs"] .name')).to_have_text(failed)
        page.go_back()
        expect(page.locator('[data-part="jobs"] .row')).to_have_count(80)


def test_the_hits_of_a_search_and_of_a_phase_are_on_the_screen(noon: Place) -> None:
    """The list of jobs is below the fold; a search scrolls to it and counts the hits."""
    with noon.page("/", viewport=LAPTOP) as page:
        heading = page.get_by_role("heading", name=re.compile("^Jobs"))
        expect(heading).not_to_be_in_viewport()
        page.get_by_role("searchbox").fill("train")
        expect(page.locator(".phases .hits")).to_contain_text("“train”")
        expect(heading).to_be_in_viewport()
        all_jobs = page.get_by_role("navigation", name="Jobs by phase").get_by_role("link", name="all")
        assert all_jobs.get_attribute("aria-current") is None
    with noon.page("/", viewport=LAPTOP) as page:
        page.get_by_role("navigation", name="Jobs by phase").get_by_role("link", name="succeeded").click()
        expect(page.get_by_role("heading", name=re.compile("^Jobs"))).to_be_in_viewport()


@pytest.mark.parametrize("path", ["/", "/?phase=running", "/jobs/distill-00012"])
def test_on_a_phone_nothing_sticks_out(noon: Place, path: str) -> None:
    for width in (320, 390):
        with noon.page(
            path, viewport={"width": width, "height": 700}, is_mobile=True, has_touch=True
        ) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_by_day_and_by_night(noon: Place, scheme: Any) -> None:
    for path in ("/", "/jobs/distill-00012"):
        with noon.page(path, color_scheme=scheme) as page:
            ratio, where = page.evaluate(CONTRAST)
            assert ratio >= 4.5, where
            back = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", back))) < 200) == (scheme == "dark")


def test_what_is_clickable_or_drawn_has_a_name(noon: Place) -> None:
    with noon.page() as page:
        assert page.locator("svg:not([aria-label])").count() == 0
        nameless = (
            "[...document.querySelectorAll('a, button, input:not([type=hidden])')].filter(n => !n.innerText"
        )
        assert (
            page.evaluate(f"{nameless} && !n.title && !n.ariaLabel && !n.closest('[role=img]')).length") == 0
        )
        assert page.locator("h2").count() == page.locator("main section, main .figure, dialog").count() - 1
        assert page.locator("main").count() == page.locator("header").count() == 1


def test_what_users_wrote_is_shown_and_never_run(tmp_path: Path, chromium: Browser) -> None:
    evil = '"><img src=x onerror="window.hit=1"><script>window.hit=1</script>'
    with place(tmp_path, chromium, 10) as it:
        it.lively.submit(job("evil-00001", 1, user=evil, queue=f"q{evil}"))
        with it.page(f"/?q={evil}") as page:
            expect(page.locator('[data-part="jobs"] .user')).to_have_text(evil)
            assert page.locator("#q").input_value() == evil
        with it.page("/jobs/evil-00001") as page:
            expect(page.locator(".facts")).to_contain_text(evil)
            assert page.evaluate("window.hit") is None
        gone = httpx.get(f"{it.url}/jobs/%3Cscript%3Ehit%3C%2Fscript%3E")
        assert (gone.status_code, "<script>hit" in gone.text) == (404, False)


def test_pages_forbid_all_but_our_own_files_and_have_nothing_inline(noon: Place) -> None:
    for path in ("/", "/jobs/distill-00012", "/jobs/nobody"):
        answer = httpx.get(noon.url + path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", answer.text)
        assert not re.search(r'(src|href|action)="(?!/|#)', answer.text)


def test_files_are_kept_by_browsers_and_pages_asked_for_again_are_not_sent_twice(noon: Place) -> None:
    with httpx.Client(base_url=noon.url) as client:
        page = client.get("/jobs/distill-00012")
        again = client.get("/jobs/distill-00012", headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for address in set(re.findall(r'(?:src|href)="(/dashboard/static/[^"]+)"', page.text)):
            assert "immutable" in client.get(address).headers["cache-control"]
        assert client.get("/dashboard/static/routes.py").status_code == 404


def test_it_says_so_when_no_scheduler_runs_or_nobody_answers(tmp_path: Path, chromium: Browser) -> None:
    with Lively.begin(tmp_path) as lively, serving(make_app(lively.app_context, HttpConfig())) as url:
        window = chromium.new_context()
        page = window.new_page()
        page.goto(url)
        expect(page.locator(".alert.bad")).to_contain_text("No scheduler runs here")
        expect(page.locator("#offline")).to_be_hidden()
        window.set_offline(True)
        expect(page.locator("#offline")).to_be_visible()
        expect(page.locator("body")).to_have_class("stale")  # the light claims nothing any more
        window.close()


@pytest.mark.skipif(
    "STARBURST_SCREENSHOTS" not in os.environ, reason="set STARBURST_SCREENSHOTS to make them"
)
def test_screenshots(tmp_path: Path, chromium: Browser) -> None:
    with place(tmp_path, chromium) as it:
        it.lively.cap(*CAPS)
        for name, scheme, size in (
            ("light", "light", DESK),
            ("dark", "dark", DESK),
            ("phone", "light", PHONE),
        ):
            shown: Any = {
                "viewport": size,
                "color_scheme": scheme,
                "device_scale_factor": 2 if size is PHONE else 1,
            }
            with it.page(**shown) as page:
                expect(page.locator(".figure").nth(1)).to_contain_text("than No-Wait")
                expect(page.locator(".figure").nth(0)).to_contain_text("least possible")
                page.screenshot(path=IMAGES / f"dashboard-{name}.png")
        home = next(
            d.subject for d in queries.decisions(it.lively.app_context.store) if d.kind == "returning"
        )
        with it.page(f"/jobs/{home}", viewport={"width": 1200, "height": 760}) as page:
            page.screenshot(path=IMAGES / "dashboard-job.png")
