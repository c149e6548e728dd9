"""A run is a process group with an environment, a log, GPUs of its own, and an end that is told."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from starburst.runs.attempt_dir import log_path
from starburst.runs.ports import Run
from tests.runs.harness import (
    PLACES,
    a_run,
    a_runner,
    is_alive,
    log,
    rank_dir,
    shell,
    until,
    untimed,
    watching,
)

pytestmark = pytest.mark.processes


def outcome(root: Path, run: Run) -> RunEnded:
    async def main() -> RunEnded:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(run, PLACES)
            return await reports.ended(run.job.id, run.attempt)

    return asyncio.run(main())


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", 128 + 11)])
def test_it_ends_with_the_exit_code_of_its_command(root: Path, script: str, code: int) -> None:
    assert untimed(outcome(root, shell(script))) == RunEnded("job", 1, RunEnd.EXITED, code)


def test_it_is_reported_started_before_it_is_reported_ended(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("exit 0"), PLACES)
            await reports.ended()
            kinds = [type(event) for event in reports.events]
            assert kinds.index(RunStarted) < kinds.index(RunEnded)

    asyncio.run(main())


def test_a_program_that_does_not_exist_is_refused_with_its_name(root: Path) -> None:
    end = outcome(root, a_run("no-such-program"))
    assert end.end is RunEnd.REFUSED
    assert (
        end.message == "cannot run 'no-such-program': No such file or directory; correct command of the job"
    )


def test_a_program_is_refused_however_long_and_in_whatever_script_its_name_is(root: Path) -> None:
    end = outcome(root, a_run("😀" * 400))
    assert end.end is RunEnd.REFUSED
    assert end.message.startswith("cannot run '😀😀")


def test_a_working_directory_that_does_not_exist_is_refused_with_its_name(root: Path) -> None:
    end = outcome(root, a_run("true", working_dir="/no/such/place"))
    assert end.end is RunEnd.REFUSED
    assert (
        end.message == "cannot run '/no/such/place': No such file or directory; correct workingDir of the job"
    )


def test_a_job_without_a_command_is_refused_with_the_mend(root: Path) -> None:
    end = outcome(root, a_run())
    assert end.end is RunEnd.REFUSED
    assert "set `command` of the job" in end.message


def test_a_run_at_a_place_that_is_not_there_is_lost(root: Path) -> None:
    end = outcome(root, a_run("true", where="n9"))
    assert end == RunEnded("job", 1, RunEnd.LOST, message="n9 takes no runs")


def test_it_writes_to_its_log(root: Path) -> None:
    outcome(root, shell("echo out; echo err >&2"))
    assert log_path(root / "runs", "job", 1).read_text() == "out\nerr\n"


def test_it_runs_in_a_clean_environment_that_tells_it_who_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_SCHEDULER", "1")
    outcome(root, a_run("env", gpus=(2,), attempt=3, env={"EPOCHS": "5"}))
    env = dict(line.split("=", 1) for line in log(root, attempt=3).splitlines())
    assert "A_SECRET_OF_THE_SCHEDULER" not in env
    expected = {
        "EPOCHS": "5",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NVIDIA_VISIBLE_DEVICES": "0,1",
        "STARBURST_JOB": "job",
        "STARBURST_ATTEMPT": "3",
        "STARBURST_SITE": "cluster",
        "STARBURST_NODE": "n1",
        "STARBURST_RANK": "0",
        "STARBURST_WORLD_SIZE": "1",
        "JOB_COMPLETION_INDEX": "0",
        "STARBURST_CHECKPOINT_DIR": str(root / "checkpoints" / "job"),
    }
    assert {name: env[name] for name in expected} == expected


def test_a_job_without_gpus_sees_none(root: Path) -> None:
    outcome(root, shell('echo "[$CUDA_VISIBLE_DEVICES]"'))
    assert log(root) == "[]\n"


def test_all_attempts_of_a_job_share_one_checkpoint_directory(root: Path) -> None:
    outcome(root, shell("echo 42 > $STARBURST_CHECKPOINT_DIR/step"))
    outcome(root, shell("cat $STARBURST_CHECKPOINT_DIR/step", attempt=2))
    assert log(root, attempt=2) == "42\n"


def test_what_a_job_leaves_in_the_background_dies_with_it(root: Path) -> None:
    """Even what has left its process group and its session."""
    outcome(root, shell("sleep 600 & echo $!; setsid sleep 600 & sleep 0.1; echo $!"))
    pids = [int(line) for line in log(root).split()]
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


def test_a_job_does_not_hold_the_lock_of_its_shim(root: Path) -> None:
    outcome(root, shell("ls /proc/self/fd | wc -w"))
    assert log(root) == "4\n"  # 0, 1, 2 and the directory that ls reads


def test_live_runs_of_a_node_never_share_a_gpu(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            for job_id, gpus in (("a", 1), ("b", 2)):
                runner.start(shell("sleep 600", job_id=job_id, gpus=(gpus,)), PLACES)
            runner.stop("a", 1, 0)
            await reports.ended("a")
            runner.start(shell("sleep 600", job_id="c", gpus=(2,)), PLACES)
            runner.start(shell("sleep 600", job_id="d", gpus=(2,), where="n2"), PLACES)
        assigned = {job_id: rank_dir(root, job_id).spec()["gpus"] for job_id in "abcd"}
        assert assigned == {"a": [0], "b": [1, 2], "c": [0, 3], "d": [0, 1]}

    asyncio.run(main())


def test_tasks_of_one_gang_on_one_node_have_gpus_of_their_own(root: Path) -> None:
    outcome(root, shell("echo $CUDA_VISIBLE_DEVICES", gpus=(2, 2)))
    assert (log(root, rank=0), log(root, rank=1)) == ("0,1\n", "2,3\n")


def test_a_run_that_finds_too_few_gpus_is_lost_not_squeezed_in(root: Path) -> None:
    end = outcome(root, a_run("true", gpus=(3,), where="n2"))
    assert end == RunEnded("job", 1, RunEnd.LOST, message="n2 has 2 free GPUs, 3 are needed")


def test_starting_twice_runs_once(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("echo ran"), PLACES)
            runner.start(shell("echo ran"), PLACES)
            await reports.ended()
            runner.start(shell("echo ran"), PLACES)
            await until(lambda: len(reports.of(RunEnded)) == 2)
        assert log(root) == "ran\n"

    asyncio.run(main())


@pytest.mark.parametrize("name", ["INT", "QUIT", "HUP"])
def test_a_run_gets_signals_that_the_scheduler_was_started_to_ignore(root: Path, name: str) -> None:
    """As a shell has it for what it starts in the background, and nohup."""
    number = signal.Signals[f"SIG{name}"]
    before = signal.signal(number, signal.SIG_IGN)
    try:
        end = outcome(root, shell(f"trap 'exit 7' {name}; kill -{name} $$; exit 3"))
    finally:
        signal.signal(number, before)
    assert end.exit_code == 7


def test_a_run_past_its_time_limit_fails_even_if_it_ends_in_good_order(root: Path) -> None:
    end = outcome(root, shell("trap 'exit 0' TERM; while :; do sleep 0.05; done", time_limit_s=0.2))
    assert untimed(end) == RunEnded("job", 1, RunEnd.OUT_OF_TIME, 124, "ran into its time limit of 0.2 s")


def test_any_text_can_be_the_id_of_a_job(root: Path) -> None:
    outcome(root, shell("pwd", job_id="../Größe 1"))
    assert log_path(root / "runs", "../Größe 1", 1).read_text().startswith(str(root / "runs"))
