"""How a container ended on a machine that is short of something: never as an exit code of the job's own."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.agent.containers import life
from starburst.runs.supervisor import files
from starburst.runs.supervisor.exits import LOSS, VERDICT
from starburst.runs.supervisor.files import read_json, write_json

NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task whose image is waited for on a disk that is full, and which nothing has told to end."""

    def run(_self: life.ContainerLife) -> int:
        raise NO_SPACE

    monkeypatch.setattr(life.ContainerLife, "_run", run)
    monkeypatch.setattr(life, "Signals", object)
    write_json(tmp_path / "spec.json", {"docker": {"here": {}}})
    return tmp_path


def fails(times: int, act: Callable[..., Any]) -> Callable[..., Any]:
    """`act`, but for the first calls."""
    left = [NO_SPACE] * times

    def first_fails(*args: Any) -> Any:
        if left:
            raise left.pop()
        return act(*args)

    return first_fails


def exit_code(task: Path) -> object:
    with pytest.raises(SystemExit) as ended:
        life.contain(str(task))
    return ended.value.code


def test_a_verdict_waits_for_room(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(files.time, "sleep", waits.append)
    monkeypatch.setattr(life, "write_reserved", fails(3, files.write_reserved))
    assert exit_code(task) == 1
    assert waits == 3 * [files.RETRY_S]
    said = read_json(task / VERDICT)
    assert (said["ended_by"], "No space left on device" in said["message"]) == (LOSS, True)


def test_a_disk_that_does_not_give_the_tasks_spec_is_asked_again(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(files.time, "sleep", waits.append)
    monkeypatch.setattr(life, "read_json", fails(2, files.read_json))
    assert exit_code(task) == 1
    assert waits == 2 * [files.RETRY_S]
    assert read_json(task / VERDICT)["ended_by"] == LOSS
