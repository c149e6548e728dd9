"""Jobs on machines of SkyPilot, in virtual time."""

from __future__ import annotations

import asyncio
import base64
import zlib
from pathlib import Path
from typing import Any

import pytest

from starburst.core.model.events import (
    InstanceGone,
    InstanceUnreachable,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from starburst.runs.attempt_dir import log_path
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_vm import Vm
from tests.clouds.sky.life import SPOT, Life, of, play, ready, run_of


def test_two_jobs_share_one_machine_at_one_time_on_gpus_of_their_own(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 20, 0, 2))
        await life.cloud.start(run_of("b", 20, 3, 2))
        ends = [await life.heard(RunEnded, of(job)) for job in "ab"]
        assert [(end.end, end.exit_code) for end in ends] == [(RunEnd.EXITED, 0), (RunEnd.EXITED, 3)]
        tasks = sky.vms[0].tasks
        assert {tasks["a/1/0"].gpus, tasks["b/1/0"].gpus} == {(0, 1), (2, 3)}
        assert abs((tasks["a/1/0"].began_at or 0) - (tasks["b/1/0"].began_at or 0)) < 5
        assert log_path(life.home / "runs", "a", 1).read_text() == f"gpus={tasks['a/1/0'].gpus}\n"
        assert [event.job_id for event in life.of(RunStarted)] == ["a", "b"]

    play(tmp_path, story)


def test_jobs_go_on_while_the_api_server_is_down(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.server_up = False
        await life.cloud.start(run_of("a", 10))
        assert (await life.heard(RunEnded)).exit_code == 0
        assert not life.of(InstanceUnreachable)

    play(tmp_path, story)


def test_a_run_that_is_stopped_ends_as_stopped_once(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 1000))
        await life.heard(RunStarted)
        await life.cloud.stop("a", 1, 5.0)
        await life.cloud.stop("a", 1, 0.0)
        assert (await life.heard(RunEnded)).end is RunEnd.STOPPED

    play(tmp_path, story)


def test_a_run_that_waits_for_gpus_can_be_stopped(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 1000, 0, 4))
        await life.heard(RunStarted)
        await life.cloud.start(run_of("b", 10, 0, 1))
        await asyncio.sleep(20)
        await life.cloud.stop("b", 1, 5.0)
        assert (await life.heard(RunEnded)).job_id == "b"
        assert sky.vms[0].tasks["b/1/0"].begun == 0

    play(tmp_path, story)


def test_a_stop_before_the_start_wins(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.stop("a", 1, 5.0)
        await life.cloud.start(run_of("a", 10))
        await asyncio.sleep(30)
        assert [end.end for end in life.of(RunEnded)] == [RunEnd.STOPPED]
        assert not sky.vms[0].tasks

    play(tmp_path, story)


def test_a_run_on_no_machine_is_lost_and_one_without_a_command_is_refused(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.heard(SiteSynced)
        await life.cloud.start(run_of("a", 10))
        assert (await life.heard(RunEnded)).end is RunEnd.LOST

    play(tmp_path, story)


def test_when_one_task_of_a_gang_fails_the_others_end_and_the_run_has_its_code(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await ready(life, "i-2")
        gang = run_of("g", 1000, 0, 1, "i-1", "i-2")
        await life.cloud.start(gang)
        await life.heard(RunStarted)
        second = next(vm for vm in sky.vms if "g/1/1" in vm.tasks)
        second.tasks["g/1/1"].spec["command"] = ("work", "1", "7")
        end = await life.heard(RunEnded)
        assert (end.end, end.exit_code) == (RunEnd.EXITED, 7)
        assert all(task.exit is not None for vm in sky.vms for task in vm.tasks.values())

    play(tmp_path, story)


def test_checkpoints_go_to_the_machine_and_come_home_before_the_end_is_known(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        kept = life.home / "checkpoints" / "a"
        kept.mkdir(parents=True)
        (kept / "step").write_text("1")
        await ready(life)
        await life.cloud.start(run_of("a", 20, checkpoint=True))
        await life.heard(RunStarted)
        there = next((sky.root).rglob("step"))
        assert there.read_text() == "1"
        there.write_text("2")
        await life.heard(RunEnded)
        assert (kept / "step").read_text() == "2"

    play(tmp_path, story)


def test_tasks_that_share_a_machine_get_their_checkpoints_once_and_none_begins_before(tmp_path: Path) -> None:
    """Each copy replaces the directory that the others work in."""
    sent = 0

    async def slow(moment: str) -> None:
        nonlocal sent
        if moment == "before send":
            sent += 1
            await asyncio.sleep(30)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        kept = tmp_path / "home" / "checkpoints" / "a"
        kept.mkdir(parents=True)
        (kept / "step").write_text("1")
        async with Life(sky, tmp_path / "home", hook=slow) as life:
            await ready(life)
            await life.cloud.start(run_of("a", 500, 0, 1, "i-1", "i-1", checkpoint=True))
            (vm,) = sky.vms
            await asyncio.sleep(20)
            assert (sent, any(task.began_at for task in vm.tasks.values())) == (1, False)
            await life.heard(RunStarted)
            assert len(vm.tasks) == 2
        async with Life(sky, tmp_path / "home", hook=slow):
            await asyncio.sleep(60)
        assert sent == 1

    run(main())


def test_a_machine_that_ended_just_before_a_crash_takes_its_runs_with_it_after_the_restart(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 5000))
        await life.heard(RunStarted)
        machine = life.cloud.machines["i-1"]
        machine.entry.ended_at = wall()
        machine.save()
        async with Life(sky, life.home) as second:
            assert (await second.heard(RunEnded)).end is RunEnd.LOST

    play(tmp_path, story)


def test_more_jobs_cost_no_more_calls_of_skypilot(tmp_path: Path) -> None:
    def calls(jobs: int) -> int:
        counted = 0

        async def story(life: Life, sky: FakeSky) -> None:
            nonlocal counted
            await ready(life)
            for number in range(jobs):
                await life.cloud.start(run_of(f"j{number}", 50, 0, 0))
            for number in range(jobs):
                await life.heard(RunEnded, of(f"j{number}"))
            await life.cloud.terminate("i-1")
            await life.heard(InstanceGone)
            counted = sky.calls_of_skypilot()

        play(tmp_path / str(jobs), story)
        return counted

    one = calls(1)
    assert one <= 14
    assert calls(16) <= one + 1


@pytest.mark.parametrize("clock_off_s", [0.0, -3600.0, 86_400.0])
def test_a_run_ended_when_its_machine_says_not_when_it_was_heard_of(
    tmp_path: Path, clock_off_s: float
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.clock_off_s = clock_off_s
        await ready(life)
        await life.cloud.start(run_of("a", 60))
        await life.heard(RunStarted)
        sky.vms[0].plugged = False
        await asyncio.sleep(300)
        sky.vms[0].plugged = True
        end = await life.heard(RunEnded)
        ended_at = sky.vms[0].tasks["a/1/0"].exit["ended_at"]  # type: ignore[index]
        assert end.ended_at == pytest.approx(ended_at, abs=1)
        assert wall() - ended_at > 200

    play(tmp_path, story)


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_whose_machine_goes_while_its_output_comes_has_ended_as_its_command_did(
    tmp_path: Path, code: int
) -> None:
    """Also if Starburst was restarted by then; it counted as lost, and the job ran again."""

    def chatty(_vm: Vm, answer: dict[str, Any]) -> dict[str, Any]:
        for task in answer["ranks"].values():
            task |= {"log": base64.b64encode(zlib.compress(b"x")).decode(), "more": task["over"]}
        return answer

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", forge=chatty)
        async with Life(sky, tmp_path / "home") as life:
            await ready(life, offer=SPOT)
            await life.cloud.start(run_of("a", 30, code))
            await asyncio.sleep(60)
            assert not life.of(RunEnded)
        sky.preempt()
        async with Life(sky, tmp_path / "home") as life:
            end = await life.heard(RunEnded)
            assert (end.end, end.exit_code) == (RunEnd.EXITED, code)
            assert end.ended_at == pytest.approx(sky.vms[0].tasks["a/1/0"].exit["ended_at"], abs=1)  # type: ignore[index]
            log = log_path(tmp_path / "home" / "runs", "a", 1, 0).read_text()
            assert "the rest of its output went with its machine" in log

    run(main())
