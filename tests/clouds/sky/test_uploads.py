"""What a run wrote to a store that is mounted with a cache is in the store before its end is told."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.agent.containers import uploads as agent
from starburst.clouds.sky.runs import run_table
from starburst.core.model.events import InstanceReady, RunEnd, RunEnded
from starburst.runs.attempt_dir import log_path
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life
from tests.clouds.sky.test_volumes import mounting
from translator.carried import Bucket

CLAIM, OUT = {"persistentVolumeClaim": {"claimName": "results"}}, {"mountPath": "/out"}
WORK_S = 5.0


def ended(
    tmp_path: Path, mode: str, uploads_s: float, mount: dict[str, Any]
) -> tuple[float, RunEnded, str, int]:
    """A run whose machine uploads for so long: when its end was told, the end, its log, and the looks."""

    async def main() -> tuple[float, RunEnded, str, int]:
        sky = FakeSky(tmp_path / "sky")
        stores = {"pvc/results": Bucket("s3://lab/results", mode)}
        async with Life(sky, tmp_path / "home", stores=stores) as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceReady)
            since = wall()
            sky.vms[0].uploads_until = since + WORK_S + uploads_s
            await life.cloud.start(mounting(("v", CLAIM, mount)))
            end = await life.heard(RunEnded)
            log = log_path(life.home / "runs", "a", 1)
            return wall() - since, end, log.read_text() if log.exists() else "", sky.calls["uploads"]

    return run(main())


def test_the_end_is_told_when_all_is_uploaded(tmp_path: Path) -> None:
    took_s, end, log, _looks = ended(tmp_path, "MOUNT_CACHED", 300.0, OUT)
    assert 305.0 < took_s < 400.0
    assert (end.end, end.exit_code, end.message) == (RunEnd.EXITED, 0, "")
    assert "bucket" not in log


def test_of_several_machines_the_one_of_the_task_is_asked(tmp_path: Path) -> None:
    async def main() -> float:
        sky = FakeSky(tmp_path / "sky")
        stores = {"pvc/results": Bucket("s3://lab/results", "MOUNT_CACHED")}
        async with Life(sky, tmp_path / "home", stores=stores) as life:
            await life.cloud.launch("i-1", OFFER.times(2))
            await life.heard(InstanceReady)
            since = wall()
            sky.vms[1].uploads_until = since + WORK_S + 300.0
            made = mounting(("v", CLAIM, OUT))
            await life.cloud.start(replace(made, slots=(replace(made.slots[0], node=1),)))
            await life.heard(RunEnded)
            return wall() - since

    assert 305.0 < run(main()) < 400.0


def test_uploads_that_never_end_are_waited_for_so_long_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_table, "HOME_S", 600.0)
    took_s, end, log, _looks = ended(tmp_path, "MOUNT_CACHED", 2000.0, OUT)
    assert 600.0 < took_s < 700.0
    told = "not all that it wrote to its volumes may be in their bucket: 2 files wait for their upload"
    assert (end.exit_code, end.message) == (0, told)
    assert told in log


@pytest.mark.parametrize(
    ("mode", "mount"),
    [("MOUNT", OUT), ("COPY", OUT | {"readOnly": True}), ("MOUNT_CACHED", OUT | {"readOnly": True})],
)
def test_nothing_is_waited_for_where_nothing_is_cached(
    tmp_path: Path, mode: str, mount: dict[str, Any]
) -> None:
    took_s, end, _log, looks = ended(tmp_path, mode, 300.0, mount)
    assert (looks, end.exit_code) == (0, 0)
    assert took_s < 60.0


# --- the agent ---------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(agent, "LOGS", str(tmp_path))
    return tmp_path / "mount.log"


def line(after_s: float, waiting: int, uploading: int) -> str:
    """As rclone writes it, so many seconds from now."""
    at = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(time.time() + after_s))
    counts = f"in use 1, to upload {waiting}, uploading {uploading}, total size 4Ki (was 4Ki)"
    return f"{at} INFO  : vfs cache: cleaned: objects 3 (was 3) {counts}\n"


NOW = {"wait_s": 0.0}


def test_a_machine_without_cached_mounts_has_nothing_to_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "LOGS", str(tmp_path / "none"))
    assert agent.uploads(NOW) == {"left": ""}


@pytest.mark.parametrize(
    ("lines", "rest", "left"),
    [
        ([(60, 0, 0)], "", ""),
        ([(-60, 3, 1), (60, 0, 0)], "", ""),
        ([(60, 1, 2)], "", "3 files wait for their upload"),
        ([(-60, 0, 0)], "", "a cached mount has not looked at its files since"),
        ([], "", "a cached mount has not said how far its uploads are"),
        ([(-60, 3, 1)], "x" * 100_000 + "\n", "a cached mount has not said how far its uploads are"),
    ],
)
def test_only_a_line_younger_than_the_last_write_says_that_all_is_uploaded(
    log: Path, lines: list[tuple[float, int, int]], rest: str, left: str
) -> None:
    log.write_text("".join(line(*what) for what in lines) + rest)
    assert agent.uploads(NOW) == {"left": left}


def test_every_mount_has_to_say_so(log: Path) -> None:
    log.write_text(line(60, 0, 0))
    log.with_name("other.log").write_text(line(60, 0, 1))
    assert agent.uploads(NOW) == {"left": "1 files wait for their upload"}
