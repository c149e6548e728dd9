"""One listing of SkyPilot serves all who asked before it began."""

from __future__ import annotations

import asyncio

import pytest

from starburst.aio import TaskSet
from starburst.clouds.sky.access.ports import ClusterState, ClusterStatus, SkyUnreachableError
from starburst.clouds.sky.machines.listing import SharedListing
from tests.app.virtual import run


class Server:
    """Lists the clusters that are up when a listing begins; takes a second."""

    def __init__(self, *up: str) -> None:
        self.up = list(up)
        self.asked = 0
        self.answers = True

    async def clusters(self) -> list[ClusterStatus]:
        self.asked += 1
        found = [ClusterStatus(name, ClusterState.UP, 0.0) for name in self.up]
        await asyncio.sleep(1.0)
        if not self.answers:
            raise SkyUnreachableError("the API server is down")
        return found


def test_who_asks_at_one_time_shares_a_listing() -> None:
    async def story() -> None:
        server, tasks = Server("a", "b"), TaskSet()
        listing = SharedListing(server.clusters, tasks)
        found = await asyncio.gather(*(listing.status(name) for name in ("a", "b", "c", "a")))
        assert [status and status.name for status in found] == ["a", "b", None, "a"]
        assert server.asked == 1
        assert not len(tasks)

    run(story())


def test_who_asks_while_a_listing_is_made_gets_the_next_one() -> None:
    async def story() -> None:
        server = Server("a")
        listing = SharedListing(server.clusters, TaskSet())
        early = asyncio.ensure_future(listing.status("b"))
        await asyncio.sleep(0.5)
        server.up.append("b")
        late = await asyncio.gather(listing.status("b"), listing.status("a"))
        assert await early is None
        assert [status and status.name for status in late] == ["b", "a"]
        assert server.asked == 2

    run(story())


def test_an_error_is_told_to_all_and_the_next_one_asks_anew() -> None:
    async def story() -> None:
        server, tasks = Server("a"), TaskSet()
        listing = SharedListing(server.clusters, tasks)
        server.answers = False
        told = await asyncio.gather(listing.status("a"), listing.status("b"), return_exceptions=True)
        assert [type(error) for error in told] == [SkyUnreachableError] * 2
        server.answers = True
        assert await listing.status("a")

    run(story())


def test_one_who_gives_up_takes_nothing_from_the_others() -> None:
    async def story() -> None:
        listing = SharedListing(Server("a").clusters, TaskSet())
        one, other = (asyncio.ensure_future(listing.status("a")) for _ in range(2))
        await asyncio.sleep(0.5)
        one.cancel()
        assert await other

    run(story())


def test_when_everything_ends_nobody_waits_on() -> None:
    async def story() -> None:
        server, tasks = Server("a"), TaskSet()
        listing = SharedListing(server.clusters, tasks)
        early = asyncio.ensure_future(listing.status("a"))
        await asyncio.sleep(0.5)
        late = asyncio.ensure_future(listing.status("a"))
        await asyncio.sleep(0)
        await tasks.cancel()
        for waiting in (early, late):
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await listing.status("a"), "whoever watches anew asks anew"

    run(story())
