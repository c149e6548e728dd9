"""SkyPilot's listing of all clusters, one at a time: machines that come up together share what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starburst.aio import TaskSet
from starburst.clouds.sky.access.ports import ClusterStatus


class SharedListing:
    """Listings by `ask`, each for all who asked before it began. Without it, so many launches would list as
    many clusters each.
    """

    def __init__(self, ask: Callable[[], Awaitable[Sequence[ClusterStatus]]], tasks: TaskSet) -> None:
        self._ask = ask
        self._tasks = tasks
        #: The listing that is to begin next, if somebody waits for it.
        self._next: asyncio.Future[Mapping[str, ClusterStatus]] | None = None

    async def status(self, cluster: str) -> ClusterStatus | None:
        """A cluster as a listing that began after this call says; None if it is not listed.

        Raises:
            SkyError: SkyPilot does not answer.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        listing = self._next
        self._tasks.ensure("listing", self._list)
        return (await asyncio.shield(listing)).get(cluster)

    async def _list(self) -> None:
        """One listing after the other, as long as somebody waits."""
        while self._next is not None:
            listing, self._next = self._next, None
            try:
                found = {status.name: status for status in await self._ask()}
            except Exception as error:  # of all who wait for it
                listing.set_exception(error)
                listing.exception()  # perhaps none of them waits any more
            except BaseException:
                for unanswered in (listing, self._next):
                    if unanswered is not None:
                        unanswered.cancel()
                self._next = None
                raise
            else:
                listing.set_result(found)
