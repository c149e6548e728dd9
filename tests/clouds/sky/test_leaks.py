"""What would leak or be lost when SkyPilot's API server dies."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from starburst.app.daemon.reaper import ReapRules
from starburst.clouds.sky.access.ports import ClusterState
from starburst.core.model.events import InstanceReady, RunEnded, RunStarted
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import RENT_S, FakeSky
from tests.clouds.sky.life import OFFER, Life, reaper_of, run_of

#: What is left of a machine's lease when the API server goes down; virtual seconds.
LEASE_S = 60.0


@pytest.mark.parametrize("server_up", [True, False])
def test_leases_are_renewed_while_the_api_server_is_down(tmp_path: Path, server_up: bool) -> None:
    async def story() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceReady)
            await life.cloud.start(run_of("a", 5 * LEASE_S))
            await life.heard(RunStarted)
            sky.server_up = server_up
            sky.vms[0].lease_until = wall() + LEASE_S
            reaper = reaper_of(life.cloud, "i-1", rules=ReapRules("c"))
            rounds = asyncio.create_task(reaper.rounds(20.0))
            assert (await life.heard(RunEnded)).exit_code == 0
            rounds.cancel()
            with suppress(asyncio.CancelledError):
                await rounds

    run(story())


def test_a_launch_that_broke_off_is_made_again_though_its_machine_counts_as_up(tmp_path: Path) -> None:
    """The real SkyPilot says UP of a machine that has neither its runtime nor autostop yet."""

    async def story() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await life.cloud.launch("i-1", OFFER)
            await asyncio.sleep(2 * RENT_S)
            for request in sky.requests.values():
                request.done.cancel()
            sky.requests.clear()  # as an API server does that starts anew
            assert [status.state for status in sky.statuses()] == [ClusterState.UP]
        async with Life(sky, tmp_path / "home") as second:
            await second.heard(InstanceReady)
        assert (sky.calls["launch"], len(sky.vms)) == (2, 1)

    run(story())
