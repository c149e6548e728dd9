"""The embedded cloud, as a controller that comes back after a crash finds it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from starburst.clouds.catalog import LocalOffer
from starburst.clouds.local import LocalCloud
from starburst.core.model.events import InstanceGone, InstanceReady, SiteSynced
from starburst.domain.clock import Pace
from starburst.domain.job import Site
from starburst.runs.processes import ProcessRunner
from tests.builders import offer
from tests.runs.harness import watching

SLOW, SCARCE = offer("slow", 1), offer("scarce", 1)


def a_cloud(root: Path) -> LocalCloud:
    """The cloud of a new controller: machines of one offer take ages to come up, the other is sold out."""
    return LocalCloud(
        (LocalOffer(SLOW, boot_s=1e6), LocalOffer(SCARCE, capacity=0)),
        root / "cloud",
        ProcessRunner(root / "cloud" / "runs", root / "checkpoints", Site.CLOUD),
        pace=Pace(),
        now=time.time,
        lease_s=900.0,
        owner="starburst",
        controller="c",
    )


def test_machines_it_says_nothing_of_yet_are_known_all_the_same(tmp_path: Path):
    async def main() -> None:
        before = a_cloud(tmp_path)
        await before.launch("i-boots", SLOW)
        await before.launch("i-ends", SLOW)
        await before.launch("i-sold-out", SCARCE)
        await before.terminate("i-ends")
        await before.terminate("i-never")
        async with watching(a_cloud(tmp_path)) as reports:
            synced = await reports.first(SiteSynced)
            assert synced.instances == {"i-boots", "i-ends", "i-sold-out", "i-never"}
            await reports.first(InstanceGone, lambda event: event.instance_id == "i-ends")
            assert not reports.of(InstanceReady)

    asyncio.run(main())
