"""Many who watch the log are looked for as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event as Flag

import pytest

from starburst.store.listings import pages
from starburst.web import decision_feed
from starburst.web.context import AppContext
from starburst.web.decision_feed import DecisionFeed, FeedBatch
from tests.cli.past import Past

WATCHERS = 200


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often the store was asked for rows, and for their end."""
    counts = {"decisions": 0, "head": 0}

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def look(*args: object, **more: object) -> object:
            counts[name] += 1
            return real(*args, **more)

        return look

    for name in counts:
        monkeypatch.setattr(pages, name, counted(name, getattr(pages, name)))
    return counts


async def watch(feed: DecisionFeed, queues: list[str] | None, until: str) -> str:
    """All that is told until there is something of this text."""
    seq, told = 0, ""
    with feed:
        while until not in told:
            batch = await feed.after(queues, seq, 500)
            seq, told = batch.seq, told + batch.text
            if until not in told:
                await feed.beyond(seq, 20)
    return told


def test_however_many_watch_the_store_is_asked_as_if_a_few_did(
    app_context: AppContext, past: Past, looks: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_feed, "POLL_S", 0.05)
    feed = DecisionFeed(app_context.store, lambda: False)

    async def main() -> list[str]:
        watching = [asyncio.create_task(watch(feed, None, "fresh-99999")) for _ in range(WATCHERS)]
        watching += [asyncio.create_task(watch(feed, ["papers"], "fresh-99999")) for _ in range(WATCHERS)]
        while looks["head"] < 2:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(past.submit, "fresh-99999", 9, queue="papers")
        return await asyncio.gather(*watching)

    told = asyncio.run(asyncio.wait_for(main(), 20))
    everything, some = set(told[:WATCHERS]), set(told[WATCHERS:])
    assert len(everything) == len(some) == 1
    assert "wait-55555" in everything.pop()
    assert "wait-55555" not in some.pop()
    assert looks["decisions"] <= 12, "each of 400 would have asked at least twice"


def test_news_between_a_look_and_the_wait_are_not_slept_over(app_context: AppContext, past: Past) -> None:
    feed = DecisionFeed(app_context.store, lambda: False)

    async def main() -> FeedBatch:
        with feed:
            batch = await feed.after(None, 0, 500)
            await asyncio.to_thread(past.submit, "fresh-99999", 9)
            while feed._head <= batch.seq:  # it was told of before anybody waited
                await asyncio.sleep(0.01)
            await feed.beyond(batch.seq, 1000)
            return await feed.after(None, batch.seq, 500)

    assert "fresh-99999" in asyncio.run(asyncio.wait_for(main(), 20)).text


def test_who_goes_away_takes_the_look_from_nobody_else(
    app_context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, real = Flag(), pages.decisions

    def slow(*args: object, **more: object) -> object:
        go.wait(20)
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(pages, "decisions", slow)
    feed = DecisionFeed(app_context.store, lambda: False)

    async def main() -> FeedBatch:
        first, second = (asyncio.create_task(feed.after(None, 0, 500)) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        go.set()
        return await second

    assert "wait-55555" in asyncio.run(asyncio.wait_for(main(), 20)).text


def test_nobody_is_looked_for_when_nobody_watches(app_context: AppContext) -> None:
    feed = DecisionFeed(app_context.store, lambda: False)

    async def main() -> None:
        with feed, feed:
            assert feed._polling is not None
        assert feed._polling is None

    asyncio.run(main())


def test_the_end_of_the_server_wakes_up_who_waits(app_context: AppContext) -> None:
    closing = Flag()
    feed = DecisionFeed(app_context.store, closing.is_set)

    async def main() -> None:
        with feed:
            waiting = asyncio.create_task(feed.beyond(10**9, 1000))
            await asyncio.sleep(0)
            closing.set()
            await waiting

    asyncio.run(asyncio.wait_for(main(), 20))
