"""A checkpoint in `cloud.bucket` was found there before the end of its run is told."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.agent.containers import confirm as agent
from starburst.clouds.sky.runs import run_table
from starburst.core.model.actions import Slot
from starburst.core.model.events import InstanceReady, RunEnd, RunEnded
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import log_path
from starburst.runs.ports import Run
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, run_of

WORK_S = 5.0
BUCKET, THERE = "s3://mine", "~/starburst-bucket/checkpoints/a"
TOLD = "not all that it wrote to its checkpoints may be in their bucket: {}"
ONE = run_of("a", WORK_S, checkpoint=True)


class Told:
    """The end of a run, and what came before it."""

    def __init__(self, life: Life, sky: FakeSky, since: float, end: RunEnded) -> None:
        self.took_s, self.end, self.looks = wall() - since, end, sky.calls["confirm"]
        log = log_path(life.home / "runs", "a", 1)
        self.log = log.read_text() if log.exists() else ""


def ended(
    tmp_path: Path,
    sky_does: Callable[[FakeSky], None] = lambda _sky: None,
    what: Run = ONE,
    machines: int = 1,
    **life: Any,
) -> Told:
    """A run on machines of which this is true once they are up."""

    async def main() -> Told:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home", **{"bucket": BUCKET, **life}) as alive:
            await alive.cloud.launch("i-1", OFFER.times(machines))
            await alive.heard(InstanceReady)
            since = wall()
            sky_does(sky)
            await alive.cloud.start(what)
            return Told(alive, sky, since, await alive.heard(RunEnded))

    return run(main())


def busy(seconds: float, number: int = 0) -> Callable[[FakeSky], None]:
    def make(sky: FakeSky) -> None:
        sky.vms[number].busy_until = wall() + seconds

    return make


def test_the_end_is_told_when_the_checkpoint_was_found_in_the_bucket(tmp_path: Path) -> None:
    told = ended(tmp_path, busy(300.0))
    assert 300.0 < told.took_s < 400.0
    assert (told.end.end, told.end.exit_code, told.end.message) == (RunEnd.EXITED, 0, "")
    assert told.looks > 5
    assert "bucket" not in told.log


def test_what_still_changes_is_waited_for_so_long_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_table, "HOME_S", 600.0)
    told = ended(tmp_path, busy(2000.0))
    assert 600.0 < told.took_s < 700.0
    assert (told.end.exit_code, told.end.message) == (0, TOLD.format("model.pt still changes"))
    assert told.end.message in told.log


def test_a_mount_that_failed_is_asked_five_times_and_then_named(tmp_path: Path) -> None:
    def fail(sky: FakeSky) -> None:
        sky.vms[0].unconfirmed = "a trial file cannot be written: Permission denied"

    told = ended(tmp_path, fail)
    assert told.looks == 5
    assert told.took_s < 300.0
    why = "a trial file cannot be written: Permission denied"
    assert (told.end.end, told.end.message) == (RunEnd.EXITED, TOLD.format(why))
    assert told.end.message in told.log


def test_a_machine_that_is_silent_meanwhile_is_asked_when_it_is_back(tmp_path: Path) -> None:
    async def main() -> tuple[float, str]:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home", bucket=BUCKET) as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceReady)
            since = wall()
            busy(60.0)(sky)
            await life.cloud.start(ONE)
            while not sky.calls["confirm"]:
                await asyncio.sleep(1.0)
            sky.vms[0].plugged = False
            while wall() < since + 200.0:
                await asyncio.sleep(1.0)
            assert not life.of(RunEnded)
            sky.vms[0].plugged = True
            end = await life.heard(RunEnded)
            return wall() - since, end.message

    took_s, message = run(main())
    assert 200.0 < took_s < 300.0
    assert message == ""


def test_of_a_gang_every_machine_is_asked_once_at_a_time(tmp_path: Path) -> None:
    need = Resources.of(1, 1, 1)
    slots = tuple(Slot(rank, "i-1", need, node=rank % 2) for rank in range(4))
    what = replace(ONE, job=replace(ONE.job, tasks=(need,) * 4), slots=slots)
    told = ended(tmp_path, busy(300.0, number=1), what, machines=2)
    assert 300.0 < told.took_s < 400.0
    others = ended(tmp_path / "2", lambda _sky: None, what, machines=2)
    assert (others.looks, others.end.message) == (2, "")


def test_a_machine_that_is_lost_has_uploaded_what_was_closed_there(tmp_path: Path) -> None:
    async def main() -> tuple[RunEnd, str, int]:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home", bucket=BUCKET) as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceReady)
            await life.cloud.start(run_of("a", 1000.0, checkpoint=True))
            while not any(task.began_at for task in sky.vms[0].tasks.values()):
                await asyncio.sleep(1.0)
            sky.preempt()
            end = await life.heard(RunEnded)
            return end.end, end.message, sky.calls["confirm"]

    end, message, looks = run(main())
    assert (end, looks) == (RunEnd.LOST, 0)
    assert "bucket" not in message


@pytest.mark.parametrize(
    ("what", "life"), [(run_of("a", WORK_S), {}), (ONE, {"bucket": None})], ids=["no checkpoint", "no bucket"]
)
def test_nothing_is_asked_where_no_checkpoint_is_in_a_bucket(
    tmp_path: Path, what: Run, life: dict[str, Any]
) -> None:
    told = ended(tmp_path, busy(300.0), what, **life)
    assert (told.looks, told.end.exit_code) == (0, 0)
    assert told.took_s < 60.0


# --- the agent ---------------------------------------------------------------------------------------------


class Mounted:
    """A directory that passes for a mounted bucket, and what the agent says of checkpoints in it."""

    def __init__(self, root: Path) -> None:
        self.bucket = root / "starburst-bucket"
        self.checkpoints = self.bucket / "checkpoints" / "a"
        self.checkpoints.mkdir(parents=True)
        (self.checkpoints / "epoch-1").mkdir()
        (self.checkpoints / "epoch-1" / "model.pt").write_bytes(b"weights")
        (self.checkpoints / "latest").write_text("epoch-1")

    def confirm(self, wait_s: float = 20.0) -> dict[str, Any]:
        asked = {"bucket": str(self.bucket), "checkpoints": str(self.checkpoints), "wait_s": wait_s}
        return agent.confirm(asked)

    def left_beside(self) -> list[str]:
        return sorted(path.name for path in self.checkpoints.parent.iterdir())


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mounted:
    made = Mounted(tmp_path)
    monkeypatch.setattr(agent, "FRESH_S", 0.01)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(made.bucket))
    return made


def while_it_forgets(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """The bucket turns out to be so once the mount has forgotten what it knew."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: happens())


def test_what_is_the_same_after_a_fresh_look_is_confirmed_and_nothing_stays_behind(mounted: Mounted) -> None:
    assert mounted.confirm() == {"left": "", "busy": True}
    assert mounted.left_beside() == ["a"]


def test_a_job_that_saved_nothing_has_nothing_to_confirm(mounted: Mounted) -> None:
    for path in (mounted.checkpoints / "latest", mounted.checkpoints / "epoch-1" / "model.pt"):
        path.unlink()
    assert mounted.confirm()["left"] == ""
    mounted.checkpoints.joinpath("epoch-1").rmdir()
    mounted.checkpoints.rmdir()
    assert mounted.confirm()["left"] == ""


def test_a_file_that_the_bucket_does_not_have_is_named(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_it_forgets(monkeypatch, (mounted.checkpoints / "epoch-1" / "model.pt").unlink)
    assert mounted.confirm() == {"left": "epoch-1/model.pt is not in the bucket", "busy": False}
    assert mounted.left_beside() == ["a"]


@pytest.mark.parametrize("name", ["latest", "new"])
def test_a_file_that_is_still_written_is_waited_for(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    while_it_forgets(monkeypatch, lambda: (mounted.checkpoints / name).write_text("epoch-20"))
    assert mounted.confirm() == {"left": f"{name} still changes", "busy": True}


def test_a_file_whose_end_cannot_be_read_back_is_named(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.pread

    def fail(file: int, count: int, at: int) -> bytes:
        if at == len("weights") - 1 and os.readlink(f"/proc/self/fd/{file}").endswith("model.pt"):
            raise OSError(errno.EIO, "Input/output error")
        return read(file, count, at)

    monkeypatch.setattr(os, "pread", fail)
    left = "checkpoints/a/epoch-1/model.pt: Input/output error"
    assert mounted.confirm() == {"left": left, "busy": False}


def test_a_mount_that_takes_no_files_any_more_is_named(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *_mode: Any, **_more: Any) -> Any:
        raise OSError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(agent.UnconfirmedError, match="a trial file cannot be written: Permission denied"):
        agent.changed(str(mounted.bucket), str(mounted.checkpoints))


def test_a_trial_file_that_comes_back_as_another_one_is_named(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil() -> None:
        (trial,) = mounted.checkpoints.parent.glob(".confirm-*")
        trial.write_bytes(bytes(byte ^ 1 for byte in trial.read_bytes()))

    while_it_forgets(monkeypatch, spoil)
    assert mounted.confirm() == {"left": "a trial file came back as another one", "busy": False}


def test_what_cannot_be_synced_is_named(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    assert mounted.confirm()["left"].endswith(": Input/output error")
    monkeypatch.setattr(
        os, "fsync", lambda _file: (_ for _ in ()).throw(OSError(errno.EINVAL, "no such call"))
    )
    assert mounted.confirm()["left"] == ""


def test_a_bucket_that_is_not_mounted_any_more_is_told(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _path: False)
    assert mounted.confirm() == {"left": "the bucket is not mounted any more", "busy": False}


def test_files_are_looked_at_several_at_a_time() -> None:
    """A bucket may be a continent away: one after the other, many files would take longer than a look may."""
    all_here = threading.Barrier(agent.AT_A_TIME, timeout=10.0)
    agent._at_once(lambda _name: all_here.wait(), [str(number) for number in range(agent.AT_A_TIME)])
    with pytest.raises(OSError, match="gone"):
        agent._at_once(lambda name: gone(name) if name == "b" else None, ["a", "b", "c"])


def gone(name: str) -> None:
    raise OSError(f"{name}: gone")


def test_a_mount_that_hangs_hangs_nobody_else(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = mounted.bucket.parent / "stuck"
    os.mkfifo(stuck)
    while_it_forgets(monkeypatch, lambda: stuck.open("rb").read())
    since = time.monotonic()
    assert mounted.confirm(0.2) == {"left": "the bucket has not answered for 0.2 s", "busy": False}
    assert time.monotonic() - since < 60
