"""A home that is an older copy of itself, and a store that is older than its home."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from starburst.app.daemon.reaper import ReapRules
from starburst.core.model.events import InstanceFailed, InstanceReady, RunEnd, RunEnded, RunStarted
from tests.app.virtual import run
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, at, ready, reaper_of, run_of


def test_an_older_home_joins_and_ends_no_machine_that_was_rented_since(tmp_path: Path) -> None:
    async def story() -> None:
        sky, home, copy = FakeSky(tmp_path / "sky"), tmp_path / "home", tmp_path / "copy"
        async with Life(sky, home):
            shutil.copytree(home, copy)
        async with Life(sky, home) as life:
            await ready(life)
            await life.cloud.start(run_of("a", 300.0))
            await life.heard(RunStarted)
        async with Life(sky, copy) as older:
            await older.cloud.launch("i-1", OFFER)
            failed = await older.heard(InstanceFailed)
            assert "which is not in this home" in failed.message
            assert failed.launched_at == failed.ended_at  # nothing to pay
            await ready(older, "i-2")
            assert [vm.ended_at for vm in sky.vms] == [None, None]
            reaper = reaper_of(older.cloud, "i-2", rules=ReapRules("c", after_s=600.0))
            await reaper.round()
            assert sky.vms[0].ended_at is None
            await asyncio.sleep(600.0)
            await reaper.round()
            await asyncio.sleep(60.0)
            assert [vm.ended_at is None for vm in sky.vms] == [False, True]

    run(story())


def test_a_run_that_a_restored_store_forgot_has_no_second_copy(tmp_path: Path) -> None:
    """The store asks for the same attempt on another machine; the journal knows where it runs."""

    async def story() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            await life.cloud.start(run_of("a", 3000.0))
            await life.heard(RunStarted)
        async with Life(sky, tmp_path / "home") as restored:
            await ready(restored, "i-1002")
            await restored.cloud.start(run_of("a", 3000.0, 0, 1, "i-1002"))
            await asyncio.sleep(60.0)
            assert [list(vm.tasks) for vm in sky.vms] == [["a/1/0"], []]
            await reaper_of(restored.cloud, "i-1002", rules=ReapRules("c")).round()
            assert (await restored.heard(RunEnded)).end in (RunEnd.LOST, RunEnd.STOPPED)
            assert sky.vms[0].ended_at is not None or sky.vms[0].tasks["a/1/0"].exit is not None
            assert await restored.heard(InstanceReady, at("i-1002"))

    run(story())
