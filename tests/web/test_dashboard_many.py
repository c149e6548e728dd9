"""Ten thousand jobs: pages and metrics of bounded size, made in bounded time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from starburst.web.dashboard import dashboard
from starburst.web.routes.metrics import metrics
from tests.builders import job
from tests.web.lively import Lively
from tests.web.serving import served

MANY = 10_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with Lively.begin(tmp_path_factory.mktemp("many")) as lively:
        lively.morning(60)
        lively.submit(*(job(f"many-{n:05d}", 8 if n % 2 else 4, user=f"u{n % 50}") for n in range(MANY)))
        with (
            served(dashboard(lively.app_context), metrics(lively.app_context)) as url,
            httpx.Client(base_url=url) as it,
        ):
            yield it


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/dashboard/overview",
        "/?q=many-00 u7",
        "/?phase=queued",
        "/jobs/many-05000",
        "/users/u7",
        "/metrics",
    ],
)
def test_an_answer_is_small_and_takes_no_fifth_of_a_second(client: httpx.Client, path: str) -> None:
    took_s = []
    for _ in range(5):
        began = time.process_time()  # of server and client: machines are shared
        answer = client.get(path)
        took_s.append(time.process_time() - began)
    assert answer.status_code == 200
    assert len(answer.content) < 200_000
    assert min(took_s) < 0.2  # about 0.05 s


def test_the_rest_is_counted(client: httpx.Client) -> None:
    page = client.get("/").text
    assert page.count('class="row waiter"') == 40
    assert "more</a>, which leave later" in page
    assert f"newest 80 of {MANY + 60:,}" in page


def test_a_search_finds_all_words_in_any_column(client: httpx.Client) -> None:
    found = client.get("/", params={"q": "MANY-00 u7"}).text
    assert "newest 80 of" not in found
    assert found.count('data-key="j-many-00') == 1000 // 50


def test_pending_jobs_are_counted_not_read(client: httpx.Client) -> None:
    samples = client.get("/metrics").text.splitlines()
    pending = sum(float(line.split()[-1]) for line in samples if line.startswith("starburst_pending_jobs{"))
    assert pending >= MANY - 100
