"""A look at a task that fails for want of something on its machine says nothing of the task."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.clouds.sky.agent import exchange
from starburst.clouds.sky.agent.task_dirs import rank_dir, run_id

NAME = "a/1/0"
SHORT = (errno.ENOSPC, errno.EMFILE, errno.EROFS)


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a task that has begun."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = Path(rank_dir(NAME))
    path.mkdir(parents=True)
    (path / "began").touch()
    env = {**os.environ, "STARBURST_RUN": run_id(str(path))}
    sleeps = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    with subprocess.Popen(sleeps, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def look(monkeypatch: pytest.MonkeyPatch, error: Exception) -> exchange.TaskAnswer:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(exchange, "look", fail)
    return exchange.attend(NAME, {"look": {NAME: 0}}, 1000)


@pytest.mark.processes
@pytest.mark.parametrize(
    "error",
    [MemoryError(), *(OSError(code, os.strerror(code)) for code in SHORT)],
    ids=repr,
)
def test_a_shortage_ends_no_task(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    found = look(monkeypatch, error)
    assert (found["over"], found["began"], found["started"]) == (False, True, False), "it is not known"
    assert found["trouble"] == str(error)
    assert child.poll() is None


@pytest.mark.processes
def test_what_is_left_of_a_task_whose_files_are_spoiled_is_ended(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = IsADirectoryError(errno.EISDIR, "is a directory")
    assert not look(monkeypatch, error)["over"], "something of it was there"
    assert child.wait(10) == -9
    assert look(monkeypatch, error)["over"]
