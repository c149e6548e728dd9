"""Machines that end without having been given back: no job joins them from the moment that is known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.machines.liveness_watch import QUIET_S
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.core.model.events import (
    InstanceGone,
    InstanceReachable,
    InstanceUnfit,
    InstanceUnreachable,
    JobsNotKeptApart,
    RunEnd,
    RunEnded,
    RunStarted,
)
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import SPOT, Life, at, of, play, ready, run_of


def test_a_machine_that_was_stopped_takes_no_job_while_it_is_ended(tmp_path: Path) -> None:
    """Ending it takes as long as SkyPilot does not answer."""

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            sky.server_up = False
            sky.stop(sky.vms[0])
            told = await life.heard(InstanceUnreachable, lambda one: "stopped" in one.why)
            assert told == InstanceUnreachable("i-1", "it was stopped, and is ended now")
            assert not life.of(InstanceGone)
        async with Life(sky, tmp_path / "home") as life:
            await life.heard(InstanceUnreachable)
            await asyncio.sleep(60)
            assert not life.of(InstanceReachable)
            sky.server_up = True
            await life.heard(InstanceGone)

    run(main())


def test_a_machine_whose_lease_has_passed_takes_no_job_while_work_comes_home(tmp_path: Path) -> None:
    """Starburst was away for longer than the lease, and not for as long as the switch takes."""

    async def slow(what: str) -> None:
        if what == "before fetch":
            await asyncio.sleep(300)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            await life.cloud.start(run_of("a", 10_000.0, checkpoint=True))
            await life.heard(RunStarted)
        sky.vms[0].lease_until = wall()
        async with Life(sky, tmp_path / "home", hook=slow) as life:
            unfit = await life.heard(InstanceUnfit)
            assert unfit == InstanceUnfit("i-1", "its lease has passed")
            assert not life.of(RunEnded)
            assert (await life.heard(RunEnded, of("a"))).end is RunEnd.LOST
            await life.heard(InstanceGone)

    run(main())


def test_an_end_that_could_not_be_journaled_is_told_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = FileJournal.put

    def full(self: FileJournal, key: str, value: object) -> None:
        if key.startswith("run/"):
            raise OSError(28, "No space left on device")
        put(self, key, value)

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 30.0))
        await life.heard(RunStarted)
        monkeypatch.setattr(FileJournal, "put", full)
        await asyncio.sleep(120)
        assert not life.of(RunEnded)
        monkeypatch.setattr(FileJournal, "put", put)
        ended = await life.heard(RunEnded)
        assert (ended.end, ended.exit_code) == (RunEnd.EXITED, 0)

    play(tmp_path, story)


def test_a_machine_that_is_always_suspected_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspect = RentedMachine.suspect

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await ready(life, "i-2", SPOT)

        async def always() -> None:
            while True:
                suspect(life.cloud.machines["i-1"])
                await asyncio.sleep(5)

        monkeypatch.setattr(RentedMachine, "suspect", lambda _machine: None)
        suspecting = asyncio.create_task(always())
        sky.vms[1].ended_at = wall()
        gone = await life.heard(InstanceGone)
        suspecting.cancel()
        assert wall() - gone.ended_at < 2 * QUIET_S
        assert (gone.instance_id, gone.preempted) == ("i-2", True)

    play(tmp_path, story)


def test_that_jobs_are_not_kept_apart_is_told_though_it_could_not_be_journaled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: FileJournal, _key: str, _value: object) -> None:
        raise OSError(28, "No space left on device")

    async def story(life: Life, _sky: FakeSky) -> None:
        await ready(life)
        machine = life.cloud.machines["i-1"]
        with monkeypatch.context() as patch:
            patch.setattr(FileJournal, "put", full)
            with pytest.raises(OSError, match="No space"):
                machine.note_together("no control groups")
        machine.note_together("no control groups")
        machine.note_together("no control groups")
        told = [event for event in life.events if event == JobsNotKeptApart("i-1", "no control groups")]
        assert len(told) == 1

    play(tmp_path, story)


def test_a_spot_machine_that_its_cloud_stops_was_preempted(tmp_path: Path) -> None:
    """As Azure takes spot machines, and GCP for the time of their end."""

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=SPOT)
        sky.stop(sky.vms[0])
        assert (await life.heard(InstanceGone)).preempted
        await ready(life, "i-2")
        sky.stop(sky.vms[1])
        assert not (await life.heard(InstanceGone, at("i-2"))).preempted

    play(tmp_path, story)
