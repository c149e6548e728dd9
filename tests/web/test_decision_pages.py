"""The pages of the decision log: each row once, also where those of old jobs were removed amid others."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import delete

from starburst.app.config.http import HttpConfig
from starburst.app.times import iso
from starburst.store import schema as t
from starburst.store.listings import queries
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.dashboard import lists
from tests.web.conftest import HERE, TestClient


def times_by_page(app_context: AppContext) -> list[list[str]]:
    """What each page of the log has, from the newest on."""
    found, address = list[list[str]](), "/decisions"
    with TestClient(make_app(app_context, HttpConfig()), base_url=HERE) as browser:
        while len(found) < 99:
            page = browser.get(address).text
            found.append(re.findall('<time datetime="([^"]+)"', page))
            older = re.search('href="(/decisions\\?before=[0-9]+)"', page)
            if older is None:
                return found
            address = older[1]
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("kept", ["all", "the newest", "every third"])
def test_the_pages_have_every_row_once_and_an_end(
    app_context: AppContext, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    monkeypatch.setattr(lists, "ROWS", 2)
    store, seq = app_context.store, t.decisions.c.seq
    head = queries.decisions(store)[-1].seq
    gone = {"all": seq < 0, "the newest": seq < head - 4, "every third": (seq % 3 != 0) & (seq != head)}[kept]
    with store.write() as conn:
        conn.execute(delete(t.decisions).where(gone))
    rows = queries.decisions(store)[::-1]
    pages = times_by_page(app_context)
    assert [at for page in pages for at in page] == [shown(row.at) for row in rows]
    assert [len(page) for page in pages] == [min(2, len(rows) - n) for n in range(0, len(rows), 2)]


def shown(at: float) -> str:
    return str(iso(at))
