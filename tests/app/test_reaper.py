"""The reaper ends machines that nobody claims, and keeps those alive that somebody does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from starburst.app.reaper import CALL_TIMEOUT_S, reap, reap_once
from starburst.clouds.catalog import LocalOffer
from starburst.clouds.local import LocalCloud
from starburst.domain.clock import Pace
from starburst.domain.cloud import Instance, InstancePhase
from starburst.domain.job import Site
from tests.app.fakes import FakeSite, World
from tests.app.virtual import run, wall
from tests.builders import offer

OFFER = offer("small", 2)
PERIOD_S = 20.0


def a_cloud(*machines: str) -> FakeSite:
    world = World(offers=(OFFER,))
    for name in machines:
        world.launch(name, OFFER, wall())
    return FakeSite(world, Site.CLOUD)


def test_a_machine_that_nobody_claims_is_ended_and_a_claimed_one_renewed():
    async def main() -> None:
        cloud = a_cloud("i-1", "i-2", "i-3")
        await reap_once(cloud, lambda: {"i-2"})
        assert cloud.calls == ["terminate i-1", "terminate i-3"]
        assert cloud.world.leases == {"i-2": 1}

    run(main())


def test_a_machine_that_has_ended_is_left_alone():
    async def main() -> None:
        cloud = a_cloud("i-1")
        await cloud.terminate("i-1")
        await asyncio.sleep(5)
        cloud.calls.clear()
        await reap_once(cloud, set)
        assert not cloud.calls

    run(main())


def test_claims_are_read_after_the_listing():
    async def main() -> None:
        cloud, claims = a_cloud(), set[str]()

        class Busy(FakeSite):
            async def owned(self) -> list[Instance]:
                claims.add("i-1")  # a launch is decided, stored and made while the list is on its way
                self.world.launch("i-1", OFFER, wall())
                return await FakeSite.owned(self)

        busy = Busy(cloud.world, Site.CLOUD)
        await reap_once(busy, lambda: set(claims))
        assert not busy.calls
        assert cloud.world.leases == {"i-1": 1}

    run(main())


def test_leases_are_renewed_every_round():
    async def main() -> None:
        cloud = a_cloud("i-1")
        reaper = asyncio.create_task(reap(cloud, lambda: {"i-1"}, PERIOD_S))
        await asyncio.sleep(3.5 * PERIOD_S)
        reaper.cancel()
        assert cloud.world.leases == {"i-1": 4}

    run(main())


@pytest.mark.parametrize("hangs", [False, True])
def test_a_round_that_fails_or_hangs_is_repeated(hangs: bool):
    async def main() -> None:
        rounds: list[float] = []

        class Shaky(FakeSite):
            async def owned(self) -> list[Instance]:
                rounds.append(wall())
                if len(rounds) == 1 and hangs:
                    await asyncio.sleep(1000 * CALL_TIMEOUT_S)
                if len(rounds) == 1:
                    raise ConnectionError("no route")
                return await FakeSite.owned(self)

        cloud = Shaky(a_cloud("i-1").world, Site.CLOUD)
        reaper = asyncio.create_task(reap(cloud, set, PERIOD_S))
        await asyncio.sleep(2 * PERIOD_S + CALL_TIMEOUT_S)
        reaper.cancel()
        assert rounds[1] - rounds[0] == pytest.approx(PERIOD_S + CALL_TIMEOUT_S * hangs)
        assert cloud.calls == ["terminate i-1"]

    run(main())


def test_machines_of_others_are_neither_seen_nor_ended(tmp_path: Path):
    def cloud_of(owner: str) -> LocalCloud:
        return LocalCloud(
            (LocalOffer(OFFER),),
            tmp_path / "cloud",
            tmp_path / "checkpoints",
            pace=Pace(),
            now=time.time,
            lease_s=900.0,
            owner=owner,
            controller="c",
        )

    async def phases(owner: str) -> dict[str, InstancePhase]:
        return {machine.id: machine.phase for machine in await cloud_of(owner).owned()}

    async def main() -> None:
        await cloud_of("us").launch("i-ours", OFFER)
        await cloud_of("others").launch("i-theirs", OFFER)
        await reap_once(cloud_of("us"), set)
        assert await phases("us") == {"i-ours": InstancePhase.TERMINATING}
        assert await phases("others") == {"i-theirs": InstancePhase.READY}

    asyncio.run(main())
