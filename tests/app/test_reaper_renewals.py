"""The reaper renews the leases of claimed machines in every round, however the cloud answers."""

from __future__ import annotations

import asyncio

from starburst.app.daemon.reaper import CALL_TIMEOUT_S
from starburst.domain.cloud import Instance
from tests.app.fakes import FakeSite
from tests.app.test_reaper import PERIOD_S, a_cloud, a_reaper
from tests.app.virtual import run


def test_a_cloud_that_lists_slowly_holds_up_no_renewal():
    async def main() -> None:
        class Slow(FakeSite):
            async def owned(self) -> list[Instance]:
                await asyncio.sleep(CALL_TIMEOUT_S - 1)
                return await FakeSite.owned(self)

        cloud = a_cloud("i-1", "i-2", site=Slow)
        reaper = asyncio.create_task(a_reaper(cloud, lambda: {"i-1"}).rounds(PERIOD_S))
        await asyncio.sleep(1)
        assert cloud.world.leases == {"i-1": 1}
        await asyncio.sleep(CALL_TIMEOUT_S)
        reaper.cancel()
        assert (cloud.calls, cloud.world.leases) == (["terminate i-2"], {"i-1": 1})

    run(main())


def test_leases_are_renewed_every_round():
    async def main() -> None:
        cloud = a_cloud("i-1")
        reaper = asyncio.create_task(a_reaper(cloud, lambda: {"i-1"}).rounds(PERIOD_S))
        await asyncio.sleep(3.5 * PERIOD_S)
        reaper.cancel()
        assert cloud.world.leases == {"i-1": 4}

    run(main())
