"""Pages of a queue, a user and an array: their numbers are those of the store and of the bill."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape

import httpx
import pytest

from starburst.domain.job import Member
from starburst.domain.money import Money
from starburst.store.listings import queries
from starburst.store.listings.costs import costs
from starburst.web.dashboard import dashboard
from tests.builders import job
from tests.web.lively import Lively
from tests.web.serving import served


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lively]:
    with Lively.begin(tmp_path_factory.mktemp("groups")) as it:
        it.morning(60)
        it.submit(
            *(job(f"sweep-x7k2p-{n}", 8, user="zoe", array=Member("sweep-x7k2p", n, 3)) for n in range(3))
        )
        it.cap({"per": "month", "usd": 500, "user": "zoe"}, {"per": "day", "usd": 50, "queue": "default"})
        yield it


@pytest.fixture(scope="module")
def client(lively: Lively) -> Iterator[httpx.Client]:
    with served(dashboard(lively.app_context)) as url, httpx.Client(base_url=url) as it:
        yield it


def text(html: str) -> str:
    """What a reader of the page sees."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@pytest.mark.parametrize("kind", ["user", "queue"])
def test_counts_and_bills_are_the_stores(lively: Lively, client: httpx.Client, kind: str) -> None:
    store = lively.app_context.store
    bills = {row.name: row for row in costs(store, kind, lively.app_context.now())}
    rows = queries.jobs(store)
    names = {getattr(row, kind) for row in rows}
    assert any(bill.running_micro_usd for bill in bills.values())
    for name in names:
        shown = text(client.get(f"/{kind}s/{name}").text)
        for phase, count in Counter(row.phase for row in rows if getattr(row, kind) == name).items():
            assert f"{phase} {count}" in shown
        spent = Money(bills[name].micro_usd) if name in bills else Money()
        assert f"Spent in the cloud {spent}" in shown


def test_gpus_are_those_of_the_slots_on_the_cluster_and_in_the_cloud(
    lively: Lively, client: httpx.Client
) -> None:
    at_home = away = whole = 0
    for name in {record.job.user for record in lively.scheduler.state.jobs.values()}:
        shown = text(client.get(f"/users/{name}").text)
        found = re.search(r"GPUs on the cluster (\d+) of (\d+) .*GPUs in the cloud (\d+)", shown)
        assert found is not None
        at_home, whole, away = at_home + int(found[1]), int(found[2]), away + int(found[3])
    nodes = lively.scheduler.state.capacity.nodes
    assert whole == sum(node.capacity.gpus for node in nodes)
    assert at_home == whole - sum(lively.scheduler.state.capacity.free(node.name).gpus for node in nodes)
    assert away > 0


def test_a_queue_has_its_weight_and_both_have_their_caps(client: httpx.Client) -> None:
    assert "Weight in fair order 1 Priority 0 Wait budget" in text(client.get("/queues/default").text)
    assert "queue default per day" in text(client.get("/queues/default").text)
    assert "user zoe per month" in text(client.get("/users/zoe").text)
    assert "user zoe" not in text(client.get("/queues/default").text)


def test_an_array_has_the_counts_of_its_jobs_and_each_links_to_it(client: httpx.Client) -> None:
    page = client.get("/arrays/sweep-x7k2p").text
    assert "queued 3" in text(page)
    assert page.count('data-key="j-sweep-x7k2p-') == 3
    assert 'href="/arrays/sweep-x7k2p"' in client.get("/jobs/sweep-x7k2p-1").text


def test_jobs_link_to_their_user_and_queue_and_these_to_all_of_their_jobs(client: httpx.Client) -> None:
    assert 'href="/users/zoe"' in client.get("/").text
    assert 'href="/queues/default"' in client.get("/jobs/sweep-x7k2p-1").text
    assert 'href="/jobs?user=zoe"' in client.get("/users/zoe").text


@pytest.mark.parametrize(
    "path", ["/queues/none", "/users/none", "/arrays/none", "/users/%25", "/arrays/sweep_x7k2p"]
)
def test_what_is_not_there_is_a_page_that_says_so(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "there is no" in text(answer.text)


def test_a_running_jobs_bill_is_the_same_on_all_pages(lively: Lively, client: httpx.Client) -> None:
    now = lively.app_context.now()
    machines = queries.instance_records(lively.app_context.store)
    job_id, owed = next(
        (job_id, micro) for it in machines for job_id, micro in it.shares(now).items() if micro > 1_000_000
    )
    row = queries.job(lively.app_context.store, job_id)
    bill = f"{Money(row.cloud_micro_usd + owed)}"
    assert bill != f"{Money(row.cloud_micro_usd)}"
    for path in ("/", "/jobs", f"/machines/{row.runs_on}", f"/users/{row.user}", f"/queues/{row.queue}"):
        (line,) = re.findall(rf'data-key="j-{job_id}">(.*?)</tr>', client.get(path).text, re.DOTALL)
        assert f"{bill}…" in text(line), path
    assert f"Cloud bill {bill} and counting" in text(client.get(f"/jobs/{job_id}").text)


def test_names_of_users_are_text(lively: Lively, client: httpx.Client) -> None:
    lively.submit(job("odd-1", 1, user="<b>&/x"))
    page = client.get("/users/%3Cb%3E&%2Fx")
    assert "User <b>&/x" in text(page.text)
    assert "<b>" not in page.text


def test_a_clock_that_runs_faster_is_told_on_a_jobs_page_as_on_the_overview(
    lively: Lively, client: httpx.Client
) -> None:
    store = lively.app_context.store
    before = store.fact("clock")
    store.set_fact("clock", {**before, "speed": 60.0})
    try:
        for path in ("/", "/jobs/sweep-x7k2p-1"):
            assert "×60" in text(client.get(path).text)
    finally:
        store.set_fact("clock", before)
