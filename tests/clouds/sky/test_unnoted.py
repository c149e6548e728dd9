"""What a full disk of the scheduler did not take is not so after a restart, and so must not be so before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.journal import FileJournal
from starburst.core.model.events import InstanceFailed, InstanceReady, RunEnd, RunEnded
from tests.app.virtual import run
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, of, ready, run_of


@contextmanager
def full_for(refused: Callable[[str, dict[str, Any]], object]) -> Iterator[None]:
    """No note of which this is true goes to the disk until the end of the block."""
    put = FileJournal.put

    def full(self: FileJournal, key: str, value: dict[str, Any]) -> None:
        if refused(key, value):
            raise OSError(28, "No space left on device")
        put(self, key, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileJournal, "put", full)
        yield


def test_an_intent_that_was_not_noted_as_asked_for_is_not_asked_for(tmp_path: Path) -> None:
    """Else a crash would leave a machine whose cluster counts as another's, and whose bill nobody has."""

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        with full_for(lambda _key, value: value.get("asked")):
            life = Life(sky, tmp_path / "home")
            await life.cloud.launch("i-1", OFFER)
            for _ in range(3):  # a scheduler watches again after a shortage
                with pytest.raises(OSError, match="No space"):
                    await life.cloud.watch(life.report)
            assert not sky.vms
        async with Life(sky, tmp_path / "home") as life:
            await life.heard(InstanceReady)
        assert len(sky.vms) == 1

    run(main())


def test_a_failed_launch_is_told_once_that_is_noted(tmp_path: Path) -> None:
    """Else a restart whose SkyPilot has forgotten the request would rent one for an intent that is over."""

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", sold_out={"p3.8xlarge"})
        with full_for(lambda _key, value: value.get("failed")):
            life = Life(sky, tmp_path / "home")
            await life.cloud.launch("i-1", OFFER)
            for _ in range(3):
                with pytest.raises(OSError, match="No space"):
                    await life.cloud.watch(life.report)
            assert not life.of(InstanceFailed)
        watch = asyncio.create_task(life.cloud.watch(life.report))
        while not life.of(InstanceFailed):
            await asyncio.sleep(0.5)
        watch.cancel()
        await asyncio.wait([watch])
        sky.sold_out.clear()
        sky.requests.clear()
        async with Life(sky, tmp_path / "home") as life:
            await life.heard(InstanceFailed)
            await asyncio.sleep(200)
        assert not sky.vms

    run(main())


def test_a_run_that_is_given_up_is_told_to_stop_once_that_is_noted(tmp_path: Path) -> None:
    """Else after a restart a job that never began would have succeeded: nothing of it failed."""

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            (vm,) = sky.vms
            vm.refuses = "no container engine"
            await life.cloud.start(run_of("a", 50.0))
            with full_for(lambda key, _value: key.startswith("run/")):
                await asyncio.sleep(400)
                assert all(task.stop_at is None for task in vm.tasks.values())
        async with Life(sky, tmp_path / "home") as life:
            assert (await life.heard(RunEnded, of("a"))).end is RunEnd.NOT_STARTED

    run(main())


def test_a_task_begins_once_it_is_noted_that_its_checkpoints_are_there(tmp_path: Path) -> None:
    """Else after a restart the old ones would be copied over what it has saved since."""

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        before = tmp_path / "home" / "checkpoints" / "a"
        before.mkdir(parents=True)
        (before / "step").write_text("old")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            await life.cloud.start(run_of("a", 5_000.0, checkpoint=True))
            (vm,) = sky.vms
            with full_for(lambda key, _value: key.startswith("run/")):
                await asyncio.sleep(120)
                assert not any(task.began_at for task in vm.tasks.values())
            while not any(task.began_at for task in vm.tasks.values()):
                await asyncio.sleep(1)
            (there,) = sky.root.rglob("step")
            there.write_text("new")
        async with Life(sky, tmp_path / "home") as life:
            await asyncio.sleep(60)
            assert there.read_text() == "new"

    run(main())
