"""The tasks of a gang start, fail and end together."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from tests.runs.harness import PLACES, a_runner, is_alive, log, rank_dir, shell, until, untimed, watching

pytestmark = pytest.mark.processes


def outcome(root: Path, script: str, ranks: int = 2) -> RunEnded:
    async def main() -> RunEnded:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell(script, gpus=(0,) * ranks), PLACES)
            return await reports.ended()

    return asyncio.run(main())


def test_it_succeeds_when_all_its_tasks_do(root: Path) -> None:
    assert outcome(root, "echo $STARBURST_RANK of $STARBURST_WORLD_SIZE", ranks=3).exit_code == 0
    assert [log(root, rank=rank) for rank in range(3)] == ["0 of 3\n", "1 of 3\n", "2 of 3\n"]


def test_the_first_task_to_fail_ends_the_others_and_gives_its_code(root: Path) -> None:
    end = outcome(root, "echo $$; [ $STARBURST_RANK = 1 ] && exit 5; sleep 600")
    assert untimed(end) == RunEnded("job", 1, RunEnd.EXITED, 5)
    assert not is_alive(int(log(root, rank=0)))


def test_it_succeeds_with_the_task_that_decides_and_the_others_are_ended(root: Path) -> None:
    async def main() -> RunEnded:
        run = shell("echo $$; [ $STARBURST_RANK = 0 ] || sleep 600", gpus=(0, 0))
        run = replace(run, workload=replace(run.workload, deciding=(0,)))
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(run, PLACES)
            return await reports.ended()

    assert untimed(asyncio.run(main())) == RunEnded("job", 1, RunEnd.EXITED, 0)
    assert not is_alive(int(log(root, rank=1)))


def test_it_is_started_once_all_its_tasks_are(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("sleep 600", gpus=(0, 0)), PLACES)
            await reports.started()
            assert all(rank_dir(root, rank=rank).shim_pid() for rank in (0, 1))
            runner.stop("job", 1, 0)
            assert (await reports.ended()).end is RunEnd.STOPPED
            assert len(reports.of(RunStarted)) == 1

    asyncio.run(main())


def test_it_is_lost_when_one_task_is(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("echo $$; sleep 600", gpus=(0, 0)), PLACES)
            await reports.started()
            await until(lambda: all(log(root, rank=rank) for rank in (0, 1)))
            os.kill(rank_dir(root, rank=1).shim_pid() or 0, signal.SIGKILL)
            assert (await reports.ended()).end is RunEnd.LOST
        assert not any(is_alive(int(log(root, rank=rank))) for rank in (0, 1))

    asyncio.run(main())
