"""Machines that hold back checkpoints, output or the end of a task, in virtual time."""

from __future__ import annotations

import asyncio
import base64
import zlib
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.ports import SkyError
from starburst.clouds.sky.runs import checkpoints, deadlines
from starburst.clouds.sky.runs.logs import TaskLogs
from starburst.core.model.events import (
    InstanceGone,
    InstanceUnreachable,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.runs.attempt_dir import log_path
from tests.app.virtual import wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_line import Line
from tests.clouds.sky.life import Life, of, play, ready, run_of
from tests.security.test_machines import A, B, tampering, two_jobs


class Withheld(Line):
    """A machine that gives no checkpoints; `takes_s` is how long it takes about it."""

    takes_s = 0.0

    async def fetch(self, *_what: Any) -> None:
        self.sky.calls["fetch"] += 1
        await asyncio.sleep(self.takes_s)
        raise SkyError("tar: step: Cannot open: Permission denied")


@pytest.fixture
def withheld(monkeypatch: pytest.MonkeyPatch) -> type[Withheld]:
    monkeypatch.setattr("tests.clouds.sky.life.Line", Withheld)
    monkeypatch.setattr(Withheld, "takes_s", 0.0)
    return Withheld


def kept(life: Life) -> Path:
    """A checkpoint of before."""
    step = life.home / "checkpoints" / "a" / "step"
    step.parent.mkdir(parents=True)
    step.write_text("1")
    return step


def test_checkpoints_that_a_machine_does_not_give_are_lost_after_some_tries_and_the_end_is_known(
    tmp_path: Path, withheld: type[Withheld]
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        step = kept(life)
        await ready(life)
        await life.cloud.start(run_of("a", 20, 3, checkpoint=True))
        end = await life.heard(RunEnded)
        assert (end.end, end.exit_code) == (RunEnd.EXITED, 3)
        assert "checkpoint lost: tar: step: Cannot open: Permission denied" in end.message
        assert sky.calls["fetch"] == checkpoints.TRIES
        assert step.read_text() == "1"
        assert "checkpoint lost" in log_path(life.home / "runs", "a", 1).read_text()
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
        assert not sky.alive()

    play(tmp_path, story)


def test_a_stop_outranks_checkpoints_that_take_for_ever(tmp_path: Path, withheld: type[Withheld]) -> None:
    withheld.takes_s = 1e6

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 20, checkpoint=True))
        while not sky.calls["fetch"]:
            await asyncio.sleep(1)
        at = wall()
        await life.cloud.stop("a", 1, 30.0)
        end = await life.heard(RunEnded)
        assert (end.end, end.exit_code) == (RunEnd.EXITED, 0)
        assert wall() - at < 35

    play(tmp_path, story)


def test_a_run_that_was_stopped_has_minutes_and_a_second_stop_leaves_it_none(
    tmp_path: Path, withheld: type[Withheld]
) -> None:
    withheld.takes_s = 1e6

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        for job in "ab":
            await life.cloud.start(run_of(job, 5000, checkpoint=True))
            await life.heard(RunStarted, lambda event, job=job: event.job_id == job)  # type: ignore[misc]
            await life.cloud.stop(job, 1, 5.0)
        at = wall()
        await asyncio.sleep(60)
        assert not life.of(RunEnded)
        await life.cloud.stop("b", 1, 0.0)
        await life.heard(RunEnded, of("b"))
        assert wall() - at < 70
        assert (await life.heard(RunEnded, of("a"))).end is RunEnd.STOPPED
        assert wall() - at < checkpoints.STOPPED_S + 20

    play(tmp_path, story)


def test_a_machine_that_says_for_ever_that_there_is_more_output_holds_no_run(tmp_path: Path) -> None:
    line = base64.b64encode(zlib.compress(b"x")).decode()

    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life)
        sky.forge = tampering(A, more=True)
        assert (await life.heard(RunEnded, of("a"))).exit_code == 0, "none came: there is no more"
        sky.forge = tampering(B, more=True, log=line)
        at = wall()
        await life.cloud.stop("b", 1, 5.0)
        await life.heard(RunEnded, of("b"))
        assert wall() - at < deadlines.DRAIN_S + 30

    play(tmp_path, story)


def test_a_machine_that_never_ends_what_it_is_told_to_end_is_unreachable(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life, 5000)
        sky.forge = tampering(A, over=False, exit=None)
        at = wall()
        await life.cloud.stop("a", 1, 5.0)
        assert "does not end, though it was told to" in (await life.heard(InstanceUnreachable)).why
        assert wall() - at < deadlines.OVERDUE_S + 60
        await life.cloud.terminate("i-1")
        assert (await life.heard(RunEnded, of("a"))).end is RunEnd.STOPPED

    play(tmp_path, story)


def test_a_job_that_removes_its_own_directory_is_lost_and_is_not_started_there_again(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life)
        sky.forge = tampering(A, known=False, began=False, started=False, over=False)
        end = await life.heard(RunEnded, of("a"))
        assert (end.end, end.message) == (RunEnd.LOST, "its files are gone from its machine")
        assert sky.vms[0].tasks[A].begun == 1
        assert (await life.heard(RunEnded, of("b"))).exit_code == 0

    play(tmp_path, story)


def test_a_log_without_end_fills_no_disk(tmp_path: Path) -> None:
    logs, path = TaskLogs(tmp_path, most=1000), tmp_path / "log"
    while (seen := logs.seen(path)) is not None:
        logs.write(path, seen, b"x" * 300)
    logs.write(path, 1200, b"y" * 300)
    assert path.read_text() == "x" * 1000 + "\nstarburst: the log ends here, at 1000 bytes\n"
