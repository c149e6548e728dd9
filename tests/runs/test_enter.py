"""A command in a task that runs: it sees what the task sees, has its rights, and ends with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from starburst.runs.accounts import RunAs, RunAsSelf
from starburst.runs.processes import ProcessRunner
from starburst.runs.supervisor.enter import EnterError, enter
from tests.runs.harness import rank_dir, shell
from tests.runs.test_seclusion import FIRST, apart, outcome  # noqa: F401 - a fixture

pytestmark = pytest.mark.processes

WAITS = shell("echo up; sleep 600", env={"COLOUR": "blue"}, gpus=(1,))
SAYS = 'echo "$COLOUR $CUDA_VISIBLE_DEVICES $(id -u) $(ls /proc | grep -c ^[0-9])"; pwd; exit 7'


def said_inside(root: Path, run_as: RunAs, script: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the output of a shell in a task."""
    found: list[int] = []

    def visit(runner: ProcessRunner, _reports: object) -> None:
        capfd.readouterr()
        found.append(enter(rank_dir(root).path, ["sh", "-c", script]))
        runner.stop("job", 1, 0)

    outcome(root, run_as, WAITS, visit)
    return found[0], capfd.readouterr().out


def test_it_has_the_variables_the_directory_and_the_gpus_of_the_task(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, text = said_inside(root, RunAsSelf(), SAYS, capfd)
    assert code == 7
    first, folder = text.splitlines()
    assert first.split()[:3] == ["blue", "0", str(os.getuid())]
    assert folder == str(rank_dir(root).path / "work")


def test_it_has_the_account_of_a_task_that_is_kept_apart_and_sees_its_processes_only(
    root: Path,
    apart: RunAs,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
) -> None:
    code, text = said_inside(root, apart, SAYS, capfd)
    assert code == 7
    colour, gpu, uid, processes = text.splitlines()[0].split()
    assert (colour, gpu) == ("blue", "0")
    assert int(uid) >= FIRST
    assert int(processes) < 9


def test_a_signal_is_told_as_shells_do(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert said_inside(root, RunAsSelf(), "kill -TERM $$", capfd)[0] == 128 + 15


def test_what_it_leaves_behind_ends_with_the_task(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said_inside(root, RunAsSelf(), "setsid sleep 600 >/dev/null 2>&1 &", capfd)
    assert not rank_dir(root).kill_strays(), "none is left"


def test_a_program_that_is_not_there_and_a_task_that_is_over(root: Path) -> None:
    problems: list[str] = []

    def visit(runner: ProcessRunner, _reports: object) -> None:
        with pytest.raises(EnterError, match="/no/such: No such file or directory"):
            enter(rank_dir(root).path, ["/no/such"])
        problems.append("told")
        runner.stop("job", 1, 0)

    outcome(root, RunAsSelf(), WAITS, visit)
    assert problems
    with pytest.raises(EnterError, match="does not run now"):
        enter(rank_dir(root).path, ["true"])
