"""kill -9, of the scheduler or of a shim, at any moment: no run is lost, doubled, or left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded, RunStarted, SiteSynced
from starburst.domain.job import Site
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

UNTIL_TOLD = "echo $$; until [ -e $STARBURST_CHECKPOINT_DIR/go ]; do sleep 0.02; done; exit 3"


def test_a_run_outlives_the_scheduler_and_the_next_one_gets_its_exit_code(root: Path) -> None:
    async def main() -> None:
        await scheduler_killed_when(root, "running", UNTIL_TOLD)
        async with watching(a_runner(root)) as reports:
            assert reports.events[:2] == [
                RunStarted("job", 1),
                SiteSynced(Site.CLUSTER, frozenset({("job", 1)})),
            ]
            (root / "checkpoints" / "job" / "go").touch()
            assert untimed(await reports.ended()) == RunEnded("job", 1, RunEnd.EXITED, 3)
        assert len(log(root).split()) == 1

    asyncio.run(main())


def test_an_adopted_run_can_be_stopped(root: Path) -> None:
    async def main() -> None:
        await scheduler_killed_when(root, "running", "trap 'exit 0' TERM; while :; do sleep 0.05; done")
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.stop("job", 1, 60)
            assert (await reports.ended()).end is RunEnd.STOPPED

    asyncio.run(main())


def test_an_adopted_run_keeps_its_gpus(root: Path) -> None:
    async def main() -> None:
        first = a_runner(root)
        async with watching(first) as reports:
            first.start(shell("sleep 600", gpus=(2,)), PLACES)
            await reports.started()
        second = a_runner(root)
        second.start(shell("sleep 600", job_id="other", gpus=(2,)), PLACES)
        assert rank_dir(root, "other").spec()["gpus"] == [2, 3]

    asyncio.run(main())


def test_a_run_that_ended_meanwhile_is_listed_with_its_end(root: Path) -> None:
    async def main() -> None:
        await scheduler_killed_when(root, "running", UNTIL_TOLD)
        (root / "checkpoints" / "job" / "go").touch()
        await until(lambda: rank_dir(root).exit() is not None and not rank_dir(root).alive())
        async with watching(a_runner(root)) as reports:
            listed = reports.events[: [type(event) for event in reports.events].index(SiteSynced)]
            assert RunEnded("job", 1, RunEnd.EXITED, 3) in [
                untimed(e) for e in listed if isinstance(e, RunEnded)
            ]

    asyncio.run(main())


def test_a_run_claimed_but_not_spawned_is_started_by_the_next_scheduler_once(root: Path) -> None:
    async def main() -> None:
        await scheduler_killed_when(root, "claimed", "echo ran")
        assert not rank_dir(root).touched()
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("echo ran"), PLACES)
            assert (await reports.ended()).exit_code == 0
        assert log(root) == "ran\n"

    asyncio.run(main())


def test_a_run_claimed_but_not_spawned_can_still_be_stopped(root: Path) -> None:
    async def main() -> None:
        await scheduler_killed_when(root, "claimed", "echo ran")
        runner = a_runner(root)
        runner.stop("job", 1, 5)
        async with watching(runner) as reports:
            assert (await reports.ended()).end is RunEnd.STOPPED
            assert reports.of(RunStarted) == []

    asyncio.run(main())


def test_a_run_whose_shim_was_killed_is_lost_and_nothing_of_it_is_alive(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("setsid sleep 600 & echo $! $$; wait"), PLACES)
            await until(lambda: rank_dir(root).shim_pid() is not None and len(log(root).split()) == 2)
            os.kill(rank_dir(root).shim_pid() or 0, signal.SIGKILL)
            end = await reports.ended()
        assert end == RunEnded("job", 1, RunEnd.LOST, message="its supervisor was killed")
        assert not any(is_alive(int(pid)) for pid in log(root).split())

    asyncio.run(main())


def test_a_shim_killed_while_no_scheduler_was_there_is_noticed_by_the_next(root: Path) -> None:
    async def main() -> None:
        await scheduler_killed_when(root, "running", "setsid sleep 600 & echo $! $$; wait")
        await until(lambda: len(log(root).split()) == 2)
        os.kill(rank_dir(root).shim_pid() or 0, signal.SIGKILL)
        async with watching(a_runner(root)) as reports:
            assert (await reports.ended()).end is RunEnd.LOST
        assert not any(is_alive(int(pid)) for pid in log(root).split())

    asyncio.run(main())


def test_the_end_of_a_run_is_told_the_same_way_for_ever(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("exit 6"), PLACES)
            end = await reports.ended()
        for _restart in range(2):
            again = a_runner(root)
            async with watching(again) as reports:
                again.stop("job", 1, 5)
                assert set(reports.of(RunEnded)) == {end}

    asyncio.run(main())
