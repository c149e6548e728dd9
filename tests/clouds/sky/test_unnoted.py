"""What a full disk of the scheduler did not take is not so after a restart, and so must not be so before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.journal import FileJournal
from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    RunEnd,
    RunEnded,
    RunStarted,
)
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import BOOT_S, FakeSky
from tests.clouds.sky.life import OFFER, SPOT, Life, of, play, ready, run_of


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
        async with Life(sky, tmp_path / "home") as life:
            with full_for(lambda _key, value: value.get("failed")):
                await life.cloud.launch("i-1", OFFER)
                await asyncio.sleep(120)
                assert not life.of(InstanceFailed)
            assert (await life.heard(InstanceFailed)).sold_out
        sky.sold_out.clear()
        sky.requests.clear()
        async with Life(sky, tmp_path / "home") as life:
            await life.heard(InstanceFailed)
            await asyncio.sleep(200)
        assert not sky.vms

    run(main())


def test_what_a_full_disk_does_not_note_holds_up_no_other_machine(tmp_path: Path) -> None:
    """Neither an end that cannot be noted, nor a run that cannot be given up."""

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            await ready(life, "i-2", SPOT)
            await life.cloud.start(run_of("a", 5_000.0))
            await life.heard(RunStarted, lambda event: event.job_id == "a")
            await life.cloud.start(run_of("b", 50.0))
            sky.vms[0].refuses = "no container engine"
            with full_for(lambda key, _value: key.startswith(("machine/i-2", "run/b"))):
                sky.vms[1].ended_at = wall()
                for _ in range(20):
                    await life.cloud.renew(["i-1"])
                    await asyncio.sleep(30)
                assert not life.of(InstanceGone)
                assert sky.vms[0].lease_until > wall() + 600
            assert (await life.heard(InstanceGone)).preempted

    run(main())


def test_a_lease_is_renewed_after_a_restart_though_nothing_can_be_noted(tmp_path: Path) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            await life.cloud.start(run_of("a", 5_000.0))
            await life.cloud.start(run_of("b", 5_000.0))
            await asyncio.sleep(30)
        (vm,) = sky.vms
        del vm.tasks["a/1/0"]  # of which there is something to note at each exchange
        with full_for(lambda *_: True):
            async with Life(sky, tmp_path / "home") as life:
                for _ in range(30):
                    await life.cloud.renew(["i-1"])
                    await asyncio.sleep(20)
                assert vm.lease_until > wall() + 600

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


@pytest.mark.parametrize("comes_up", [False, True], ids=["it is up", "it comes up"])
def test_a_machine_of_which_something_is_not_noted_at_a_start_is_not_given_back(
    tmp_path: Path, comes_up: bool
) -> None:
    """What is not noted ends the watch, which begins anew; until then its cloud may be slow."""
    refused: list[str] = []

    def once(key: str, value: dict[str, Any]) -> bool:
        listed = key == "machine/i-2" and value["launched_at"] is not None
        if not refused and (listed if comes_up else key == "machine/i-1" and not value["kept"]):
            refused.append(key)
            return True
        return False

    async def slowly(what: str) -> None:
        await asyncio.sleep(20.0 if what == "before sight" else 0.0)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            await life.cloud.start(run_of("a", 300.0))
            await asyncio.sleep(BOOT_S)
            if comes_up:
                await life.cloud.launch("i-2", OFFER)
                await asyncio.sleep(BOOT_S)
        sky.vms[0].kept = comes_up  # else there is something to note of it
        with full_for(once):
            life = Life(sky, tmp_path / "home", slowly)
            with pytest.raises(OSError, match="No space"):
                await life.cloud.watch(life.report)
        async with Life(sky, tmp_path / "home") as life:
            assert (await life.heard(RunEnded)).end is RunEnd.EXITED
            assert not life.of((InstanceGone, InstanceFailed))
        assert len(sky.alive()) == len(sky.vms) == 1 + comes_up

    run(main())


def test_a_machine_that_is_given_back_ends_though_nothing_can_be_noted(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await asyncio.sleep(30)
        await life.cloud.terminate("i-1")
        with full_for(lambda *_: True):
            await asyncio.sleep(30)
            assert not sky.alive()
            assert not life.of(InstanceGone)
        (vm,) = sky.vms
        gone = await life.heard(InstanceGone)
        assert (gone.launched_at, gone.ended_at) == (vm.made_at, vm.ended_at)

    play(tmp_path, story)
