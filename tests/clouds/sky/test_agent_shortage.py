"""What fails for want of something on a machine says nothing of the task, the lease, or what is free."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.clouds.sky.agent import dead_man_switch, devices, exchange
from starburst.clouds.sky.agent.containers.variables import take_secrets
from starburst.clouds.sky.agent.protocol import TaskAnswer
from starburst.clouds.sky.agent.task_dirs import rank_dir, run_id
from starburst.runs.supervisor.files import write_json

NAME = "a/1/0"
READ_FACT = "starburst.clouds.sky.agent.task_dirs.read_fact"
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


def look(monkeypatch: pytest.MonkeyPatch, error: Exception) -> TaskAnswer:
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


class TestOfFilesThatCannotBeRead:
    """The machine has no file handle left, or a bad disk: what its files say is not known."""

    @pytest.fixture(autouse=True)
    def short(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The directory of a task with a GPU, whose files are there and cannot be read."""
        monkeypatch.setenv("HOME", str(tmp_path))
        path = Path(rank_dir(NAME))
        path.mkdir(parents=True)
        write_json(path / "devices.json", {"gpus": [0], "cpus": []})
        write_json(path / "secrets.json", {"TOKEN": "x"})
        exchange.renew(60.0)

        def fail(*_: object) -> None:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

        monkeypatch.setattr(READ_FACT, fail)
        return path

    def test_a_lease_has_not_lapsed(self) -> None:
        answer = exchange.exchange({"lease_s": 60.0})
        assert (answer["lapsed"], answer["renewed"]) == (False, False)
        assert "Too many open files" in answer["trouble"]

    def test_no_gpu_is_free(self, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(devices, "all_gpus", lambda: (0, 1))
        other = short.parent.parent.parent / "b" / "1" / "0"
        other.mkdir(parents=True)
        with pytest.raises(OSError, match="Too many open files"):
            devices.claim(str(other), 1, 0)

    def test_secrets_stay_where_they_are(self, short: Path) -> None:
        with pytest.raises(OSError, match="Too many open files"):
            take_secrets(str(short))
        assert (short / "secrets.json").exists()

    def test_the_dead_man_switch_goes_by_what_it_has_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        facts = iter([{"until": 0, "boot": "", "until_boottime": 0}, {"after_s": 10}])

        def read(*_: object) -> object:
            for fact in facts:
                return fact
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

        monkeypatch.setattr(READ_FACT, read)
        looks: list[object] = []

        def look(settings: object, left_s: float) -> bool:
            looks.append((settings, left_s < -1e6))
            return False

        monkeypatch.setattr(dead_man_switch, "is_due", look)

        def sleep(_seconds: float) -> None:
            if len(looks) == 2:
                raise TimeoutError

        monkeypatch.setattr("time.sleep", sleep)
        with pytest.raises(TimeoutError):
            dead_man_switch.switch()
        assert looks == 2 * [({"after_s": 10}, True)]
