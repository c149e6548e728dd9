"""A stop is SIGTERM, a grace, SIGKILL; and what was stopped does not come back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from tests.runs.harness import (
    PLACES,
    a_runner,
    is_alive,
    log,
    rank_dir,
    scheduler_killed_when,
    shell,
    until,
    untimed,
    watching,
)

pytestmark = pytest.mark.processes

# A signal between a fork and its exec is lost, so nothing here is asleep for long.
SAVES = "trap 'echo 7 > $STARBURST_CHECKPOINT_DIR/step; exit 0' TERM; echo up; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo up; while :; do sleep 600; done"


def stopped(root: Path, script: str, *graces_s: float) -> RunEnded:
    """Start, and stop once the script has said so on its log."""

    async def main() -> RunEnded:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell(script), PLACES)
            await until(lambda: (rank_dir(root).path / "log").exists() and log(root).startswith("up"))
            for grace_s in graces_s:
                runner.stop("job", 1, grace_s)
            return await reports.ended()

    return asyncio.run(main())


def test_a_job_that_heeds_sigterm_can_save_its_progress(root: Path) -> None:
    assert untimed(stopped(root, SAVES, 60)) == RunEnded("job", 1, RunEnd.STOPPED, 0)
    assert (root / "checkpoints" / "job" / "step").read_text() == "7\n"


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(root: Path) -> None:
    before = time.monotonic()
    assert untimed(stopped(root, DEAF, 0.3)) == RunEnded("job", 1, RunEnd.STOPPED, 128 + 9)
    assert time.monotonic() - before >= 0.3


def test_a_child_may_still_save_when_the_shell_above_it_is_dead(root: Path) -> None:
    save = "sleep 0.2; echo 7 > $STARBURST_CHECKPOINT_DIR/step; exit 0"
    stopped(root, f"(trap '{save}' TERM; echo up; while :; do sleep 0.05; done); true", 60)
    assert (root / "checkpoints" / "job" / "step").read_text() == "7\n"


def test_a_second_stop_changes_nothing(root: Path) -> None:
    assert untimed(stopped(root, SAVES, 60, 60)) == RunEnded("job", 1, RunEnd.STOPPED, 0)


def test_a_second_stop_can_shorten_the_grace(root: Path) -> None:
    assert untimed(stopped(root, DEAF, 600, 0)) == RunEnded("job", 1, RunEnd.STOPPED, 128 + 9)


def test_nothing_of_a_stopped_job_is_alive(root: Path) -> None:
    stopped(root, "sleep 600 & a=$!; setsid sleep 600 & echo up $a $!; wait", 0)
    pids = [int(word) for word in log(root).split()[1:]]
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


def test_a_stop_right_after_the_start_is_not_missed(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("sleep 600"), PLACES)
            runner.stop("job", 1, 0)
            assert (await reports.ended()).end is RunEnd.STOPPED

    asyncio.run(main())


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.02, 0.03, 0.05, 0.08])
def test_a_stop_while_the_shim_comes_up_is_not_missed(root: Path, delay_s: float) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("sleep 600"), PLACES)
            await until(rank_dir(root).alive)
            await asyncio.sleep(delay_s)
            runner.stop("job", 1, 0)
            assert (await reports.ended()).end is RunEnd.STOPPED

    asyncio.run(main())


def test_a_shim_that_finds_a_stop_as_it_comes_up_does_not_begin(root: Path) -> None:
    async def main() -> None:
        await scheduler_killed_when(root, "claimed", "echo ran")
        rank = rank_dir(root)
        rank.ask_stop(60)
        rank.spawn()
        await until(lambda: rank.exit() is not None and not rank.alive())
        assert rank.shim_pid() is None
        assert log(root) == ""

    asyncio.run(main())


def test_a_run_stopped_before_it_was_started_never_starts(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.stop("job", 1, 5)
            assert (await reports.ended()).end is RunEnd.STOPPED
            runner.start(shell("echo ran"), PLACES)
            await until(lambda: len(reports.of(RunEnded)) == 2)
            assert reports.of(RunStarted) == []
        assert not rank_dir(root).path.exists()

    asyncio.run(main())


def test_a_stop_after_the_end_reports_the_end_again(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("exit 4"), PLACES)
            end = await reports.ended()
            runner.stop("job", 1, 5)
            assert reports.of(RunEnded) == [end, end]

    asyncio.run(main())
