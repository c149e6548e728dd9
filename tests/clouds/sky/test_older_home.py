"""A home that is an older copy of itself, and a store that is older than its home."""

from __future__ import annotations

import asyncio
import shutil
from errno import ENOSPC
from math import inf
from pathlib import Path

import pytest

from starburst.app.daemon.reaper import ReapRules
from starburst.clouds.sky.access.ports import LocalError, SkyUnreachableError
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.machines.ended import DAY_S, KEPT_DAYS, load_recent_machines
from starburst.clouds.sky.machines.entry import MachineEntry, save_machine
from starburst.clouds.sky.machines.naming import Naming
from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, at, of, play, ready, reaper_of, run_of


def test_an_older_home_joins_and_ends_no_machine_that_was_rented_since(tmp_path: Path) -> None:
    async def story() -> None:
        sky, home, copy = FakeSky(tmp_path / "sky"), tmp_path / "home", tmp_path / "copy"
        async with Life(sky, home):
            shutil.copytree(home, copy)
        async with Life(sky, home, lease_s=500.0) as life:
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


@pytest.mark.parametrize("away_s", [0.0, 60.0, 200.0], ids=["given back", "while away", "too late"])
def test_a_launch_that_never_asked_ends_no_machine_of_that_name(tmp_path: Path, away_s: float) -> None:
    """Its job was cancelled, or its time was over while SkyPilot was away."""

    async def story(life: Life, sky: FakeSky) -> None:
        another = sky.strange(Naming("starburst", "c").cluster("i-1"))
        sky.server_up = not away_s
        await life.cloud.launch("i-1", OFFER)
        if away_s < life.launch_limit_s:
            await asyncio.sleep(away_s / 2)
            await life.cloud.terminate("i-1")
        await asyncio.sleep(away_s)
        assert life.of((InstanceFailed, InstanceGone)) or not away_s, "SkyPilot has nothing to say of it"
        sky.server_up = True
        over = await life.heard((InstanceFailed, InstanceGone))
        await asyncio.sleep(60.0)
        assert over.launched_at == over.ended_at  # nothing to pay
        assert another.ended_at is None
        assert sky.calls["launch"] == sky.calls["down"] == 0

    play(tmp_path, story, launch_limit_s=100.0)


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


def test_two_schedulers_on_copies_of_one_home_end_no_machine_of_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both live at once; each renews the leases of what it has rented itself."""
    monkeypatch.setattr("tests.app.virtual.LIMIT_S", 10_000.0)
    rules, lease_s = ReapRules("c", after_s=100.0), 300.0

    async def attend(life: Life, *machines: str) -> asyncio.Task[None]:
        for machine in machines:
            await ready(life, machine)
            await life.cloud.start(run_of(machine, 1500.0, 0, 1, machine))
        reaper = reaper_of(life.cloud, *machines, rules=rules)
        return asyncio.create_task(reaper.rounds(20.0))

    async def story() -> None:
        sky, home, copy = FakeSky(tmp_path / "sky"), tmp_path / "home", tmp_path / "copy"
        async with Life(sky, home, lease_s=lease_s):
            shutil.copytree(home, copy)
        async with Life(sky, home, lease_s=lease_s) as first:
            reapers = [await attend(first, "i-1")]
            async with Life(sky, copy, lease_s=lease_s) as second:
                reapers += [await attend(second, "i-2", "i-3")]
                for life, machine in ((first, "i-1"), (second, "i-2"), (second, "i-3")):
                    assert (await life.heard(RunEnded, of(machine))).exit_code == 0
                assert len(sky.alive()) == 3
                await second.cloud.terminate("i-3")
                await second.heard(InstanceGone)
            for reaper in reapers:
                reaper.cancel()

    run(story())
    said = [line for line in capsys.readouterr().out.splitlines() if "another-scheduler-has-our-id" in line]
    assert len(said) == 3, "each of the two tells of each machine of the other once"


def test_a_machine_that_nobody_renews_is_ended_when_its_lease_has_passed_though_it_is_not_known_here(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        sky, home = FakeSky(tmp_path / "sky"), tmp_path / "home"
        async with Life(sky, home, lease_s=200.0) as life:
            await ready(life)
            await life.cloud.start(run_of("a", 5000.0))
        shutil.rmtree(home)
        async with Life(sky, home, lease_s=200.0) as restored:
            since = wall()
            reaper = asyncio.create_task(
                reaper_of(restored.cloud, rules=ReapRules("c", after_s=50.0)).rounds(20.0)
            )
            while sky.alive():
                await asyncio.sleep(1.0)
            assert 150 < wall() - since < 250
            reaper.cancel()

    run(story())


@pytest.mark.parametrize("ours", [True, False], ids=["no ssh here", "it does not answer"])
def test_a_machine_that_cannot_be_asked_for_its_lease_is_ended_once_its_switch_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    """It may be another scheduler's; what fails on this side says nothing about it."""
    monkeypatch.setattr("tests.app.virtual.LIMIT_S", 10_000.0)

    async def story() -> None:
        sky, home = FakeSky(tmp_path / "sky"), tmp_path / "home"
        async with Life(sky, home, lease_s=200.0) as life:
            await ready(life)
        shutil.rmtree(home)
        async with Life(sky, home, lease_s=200.0) as restored:

            async def silent(*_: object) -> None:
                raise LocalError("no ssh") if ours else SkyUnreachableError("timed out")

            monkeypatch.setattr(restored.cloud._context.transport, "call", silent)
            sky.vms[0].lease_until = inf  # somebody renews it
            reaper = reaper_of(restored.cloud, rules=ReapRules("c", after_s=50.0))
            rounds = asyncio.create_task(reaper.rounds(20.0))
            await asyncio.sleep(700.0)
            assert sky.alive()
            await asyncio.sleep(200.0)
            assert bool(sky.alive()) is ours
            rounds.cancel()

    run(story())


@pytest.mark.parametrize("armed", [True, False], ids=["it renews it", "nobody ever logged in"])
def test_a_machine_whose_name_a_twin_has_taken_is_left_to_it_if_it_has_a_lease(
    tmp_path: Path, armed: bool
) -> None:
    """Both count their machines alike, so both come to the same name."""

    async def second(sky: FakeSky, copy: Path) -> None:
        async with Life(sky, copy) as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceFailed)
            reaper = reaper_of(life.cloud, rules=ReapRules("c", after_s=100.0))
            rounds = asyncio.create_task(reaper.rounds(20.0))
            await asyncio.sleep(200.0)
            rounds.cancel()
            assert bool(sky.alive()) is armed

    async def story() -> None:
        sky, home, copy = FakeSky(tmp_path / "sky"), tmp_path / "home", tmp_path / "copy"
        async with Life(sky, home):
            shutil.copytree(home, copy)
        async with Life(sky, home) as first:
            await ready(first)
            if armed:
                await second(sky, copy)
        if not armed:
            sky.vms[0].switch_s = None
            await second(sky, copy)

    run(story())


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_machine_that_ended_after_the_backup_is_billed_until_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    """The store that was put back has it as running; the home has seen it end, days ago."""
    monkeypatch.setattr("tests.app.virtual.LIMIT_S", 30 * DAY_S)

    async def story() -> None:
        sky, home = FakeSky(tmp_path / "sky"), tmp_path / "home"
        async with Life(sky, home) as life:
            await ready(life)
            await asyncio.sleep(600.0)
            await life.cloud.terminate("i-1")
            gone = await life.heard(InstanceGone)
        for _ in range(restarts):
            await asyncio.sleep(1.5 * DAY_S)
            async with Life(sky, home) as later:
                assert "i-1" not in (await later.heard(SiteSynced)).instances
                assert later.of(InstanceGone) == [], "it is in no books"
        await asyncio.sleep(1.5 * DAY_S)
        for _ in range(2):  # the first time the scheduler ends before it has stored that
            async with Life(sky, home, in_books=["i-1"]) as restored:
                assert "i-1" in (await restored.heard(SiteSynced)).instances
                assert restored.of(InstanceGone) == [gone]

    run(story())


def test_of_machines_that_ended_long_ago_the_journal_keeps_one_note_a_day(tmp_path: Path) -> None:
    def entry(name: str, ended_at: float) -> MachineEntry:
        return MachineEntry(name, "m", False, ended_at - 60.0, launched_at=ended_at - 60.0, ended_at=ended_at)

    journal = FileJournal(tmp_path)
    ended = [entry("i-1", 0.0), entry("i-2", 60.0), entry("i-3", 2 * DAY_S), entry("i-4", 4 * DAY_S)]
    for each in ended:
        save_machine(journal, each)
    assert load_recent_machines(journal, 4 * DAY_S, ["i-2"]) == [ended[1], ended[3]]
    assert journal.all_keys("") == ["ended/0", "ended/2", "machine/i-2", "machine/i-4"]
    assert load_recent_machines(journal, 6 * DAY_S, ["i-1", "i-9"]) == [ended[0]]
    assert journal.all_keys("") == ["ended/0", "ended/2", "ended/4"]
    assert load_recent_machines(journal, (2 + KEPT_DAYS) * DAY_S, []) == []
    assert journal.all_keys("") == ["ended/2", "ended/4"]


def test_an_old_end_stays_where_it_is_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: FileJournal, _key: str, _value: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    journal = FileJournal(tmp_path)
    save_machine(journal, MachineEntry("i-1", "m", False, 0.0, launched_at=0.0, ended_at=60.0))
    monkeypatch.setattr(FileJournal, "put", full)
    assert load_recent_machines(journal, 3 * DAY_S, []) == []
    assert journal.all_keys("") == ["machine/i-1"]
