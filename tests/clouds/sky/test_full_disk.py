"""A machine whose disk is full: its lease is renewed, what runs there goes on, nothing starts there."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from starburst.clouds.sky.machines import fitness
from starburst.core.model.events import (
    InstanceUnfit,
    InstanceUnreachable,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.runs.supervisor import files
from tests.app.virtual import wall
from tests.clouds.sky.agent_machine import let_accounts_reach
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import Life, play, ready, run_of

ALONE = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.processes
@pytest.mark.parametrize("how", ["apart", "together"])
def test_a_neighbour_that_fills_the_disk_costs_nobody_else_a_job(tmp_path: Path, how: str) -> None:
    """The real agent on a small disk of its own."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("needs root and util-linux, to mount a small disk for itself")
    let_accounts_reach(tmp_path / "home")
    told = subprocess.run(
        [unshare, *ALONE, sys.executable, "-m", "tests.clouds.sky.full_disk", str(tmp_path / "home"), how],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if "mount" in told.stderr and "Traceback" not in told.stderr:
        pytest.skip(f"this machine mounts nothing: {told.stderr.strip()}")
    assert told.stdout == "well\n", told.stderr[-3000:]


FULL = "its disk is full: 0 KiB of 40 MiB are free"


def test_a_machine_whose_disk_is_full_is_unfit_though_no_task_waits_for_it(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("runs", 600))
        await life.heard(RunStarted)
        sky.vms[0].trouble, at = FULL, wall()
        assert (await life.heard(InstanceUnfit)).why == FULL
        assert wall() - at < fitness.UNFIT_S + 30
        before = sky.vms[0].lease_until
        await life.cloud.renew(["i-1"])
        assert (await life.heard(RunEnded)).exit_code == 0
        assert sky.vms[0].lease_until > before + 100
        assert not life.of(InstanceUnreachable)

    play(tmp_path, story)


def test_a_disk_that_is_full_for_a_minute_costs_no_machine(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        for _ in range(3):
            sky.vms[0].trouble = FULL
            await asyncio.sleep(fitness.UNFIT_S - 30)
            sky.vms[0].trouble = ""
            await asyncio.sleep(30)
        assert not life.of(InstanceUnfit)

    play(tmp_path, story)


def test_a_lease_that_a_machine_could_not_renew_is_renewed_once_it_can(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        vm = sky.vms[0]
        vm.renews, vm.trouble = False, "its lease cannot be renewed: Read-only file system"
        await life.cloud.renew(["i-1"])
        before = vm.lease_until
        await asyncio.sleep(60)
        assert vm.lease_until == before
        vm.renews, vm.trouble = True, ""
        await asyncio.sleep(20)
        assert vm.lease_until > before, "nobody asked for it again"
        vm.renews, vm.trouble = False, "its lease cannot be renewed: Read-only file system"
        await life.cloud.renew(["i-1"])
        assert (await life.heard(InstanceUnfit)).why == vm.trouble

    play(tmp_path, story)


def test_an_agent_that_fails_now_and_then_hides_no_refusal(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].refuses = "No space left"
        await life.cloud.start(run_of("starts", 10))
        for _ in range(12):
            sky.vms[0].agent_fails = "No space left"
            await asyncio.sleep(6)
            sky.vms[0].agent_fails = ""
            await asyncio.sleep(12)
        assert [event.why for event in life.of(InstanceUnfit)] == ["No space left"]
        assert [event.end for event in life.of(RunEnded)] == [RunEnd.NOT_STARTED]

    play(tmp_path, story)


# --- files in blocks that were taken before --------------------------------------------------------------


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with blocks of its own, on a disk that gives out no others."""
    path = tmp_path / "fact.json"
    files.write_reserved(str(path), {"old": 1})
    files.reserve(str(path))

    def nothing_fits(*_what: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_json", nothing_fits)
    return path


def test_a_fact_changes_places_with_its_reserve_again_and_again(full: Path) -> None:
    for number in range(5):
        files.write_reserved(str(full), {"number": number})
        assert files.read_fact(full) == {"number": number}
        assert sorted(os.listdir(full.parent)) == ["fact.json", "fact.json.room"]


def test_a_reserve_for_which_there_was_no_room_is_made_once_there_is(full: Path) -> None:
    room = Path(f"{full}.room")
    room.write_bytes(b"")
    files.reserve(str(full))
    assert room.stat().st_size == files.RESERVED_BYTES
    files.write_reserved(str(full), {"new": 1})
    files.reserve(str(full))
    assert room.stat().st_size == files.RESERVED_BYTES
    assert files.read_fact(full) == {"new": 1}


def test_what_a_killed_writer_left_stands_in_nobodys_way(full: Path) -> None:
    os.link(full, f"{full}.old")
    files.write_reserved(str(full), {"new": 1})
    assert files.read_fact(full) == {"new": 1}
    assert sorted(os.listdir(full.parent)) == ["fact.json", "fact.json.room"]


@pytest.mark.parametrize("evil", ["pipe", "link", "nothing"])
def test_a_reserve_that_a_job_has_replaced_is_none(full: Path, evil: str) -> None:
    room, other = Path(f"{full}.room"), full.parent / "other"
    room.unlink()
    other.write_text("its own")
    if evil == "pipe":
        os.mkfifo(room)
    elif evil == "link":
        room.symlink_to(other)
    with pytest.raises(OSError):  # noqa: PT011 - which one is the system's
        files.write_reserved(str(full), {"new": 1})
    assert files.read_fact(full) == {"old": 1}
    assert other.read_text() == "its own"
