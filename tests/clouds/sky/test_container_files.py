"""Files of volumes on a machine: with their modes, out of others' reach, and gone with their task."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any, cast

import pytest

from starburst.clouds.sky.agent.containers.options import TaskRefusedError, bind, in_memory, source_of
from starburst.clouds.sky.agent.containers.volume_files import write_files
from starburst.clouds.sky.agent.protocol import ContainerSpec, FileToWrite, TaskSpec, VolumeMount
from starburst.clouds.sky.agent.task_control import state, stop, take_in
from starburst.clouds.sky.agent.task_dirs import write_exit
from starburst.runs.supervisor.exits import LOSS
from tests.clouds.sky.container_task import ContainerTask


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerTask:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return ContainerTask(tmp_path)


def file(path: str, mode: int | None = None, *, secret: bool = False, content: bytes = b"x") -> FileToWrite:
    data = base64.b64encode(content).decode()
    return {"volume": "0", "path": path, "content": data, "mode": mode, "secret": secret}


def taken_in(task: ContainerTask, *files: FileToWrite) -> Path:
    """The task, with files, as an exchange brings it; where they will be."""
    spec: dict[str, Any] = {"docker": {"name": "a"}, "files": list(files)}
    take_in(str(task.dir), cast("TaskSpec", spec))
    assert "files" not in json.loads((task.dir / "spec.json").read_text())
    return task.dir / "volumes"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def mount(below: str, *, files: bool = True) -> VolumeMount:
    return {
        "path": "/v",
        "store": None,
        "told": "a volume",
        "copied": False,
        "below": below,
        "read_only": True,
        "files": files,
        "memory_mib": None,
    }


def test_modes_are_the_manifests_or_a_kubelets_and_a_secret_is_its_readers_alone(task: ContainerTask) -> None:
    files = file("d/plain"), file("own", 0o440), file("secret", secret=True), file("bytes", content=b"\xff\0")
    volumes = taken_in(task, *files)
    assert mode_of(task.dir / "files.json") == 0o600
    write_files(str(task.dir))
    assert not (task.dir / "files.json").exists()
    assert [mode_of(volumes / "0" / name) for name in ("d/plain", "own", "secret")] == [0o644, 0o440, 0o400]
    assert (volumes / "0" / "bytes").read_bytes() == b"\xff\0"
    assert mode_of(volumes) == 0o700, "other users of the machine come no further"
    assert mode_of(volumes / "0") == 0o755, "the container's user does"


def test_they_go_with_a_task_that_never_starts_and_with_one_whose_agent_was_killed(
    task: ContainerTask,
) -> None:
    taken_in(task, file("secret", secret=True))
    stop(str(task.dir), 0.0)
    assert not (task.dir / "files.json").exists()
    for name in ("spec.json", "exit.json"):
        (task.dir / name).unlink()
    volumes = taken_in(task, file("secret", secret=True))
    write_files(str(task.dir))
    (task.dir / "began").touch()
    assert state(str(task.dir))["over"]
    assert not volumes.exists()


def test_they_go_too_when_what_runs_the_task_was_killed_after_it_had_ended(task: ContainerTask) -> None:
    volumes = taken_in(task, file("secret", secret=True))
    write_files(str(task.dir))
    write_exit(str(task.dir), LOSS, "the system of its machine ended it, as in a shutdown")
    assert state(str(task.dir))["over"]
    assert not volumes.exists()


def test_they_are_mounted_read_only_and_a_file_that_is_not_there_is_refused(task: ContainerTask) -> None:
    volumes = taken_in(task, file("a"))
    write_files(str(task.dir))
    a = mount("0/a")
    assert bind(source_of(str(task.dir), a), a) == ["-v", f"{volumes}/0/a:/v:ro"]
    with pytest.raises(TaskRefusedError, match="there is no b in its volume; mend subPath"):
        source_of(str(task.dir), mount("0/b"))


def test_memory_has_its_size_or_its_containers() -> None:
    bare = cast("ContainerSpec", {"options": []})
    limited = cast("ContainerSpec", {"options": ["--memory", "512m"]})
    assert in_memory("/dev/shm", 64, limited) == ["--tmpfs", "/dev/shm:rw,exec,mode=1777,size=64m"]
    assert in_memory("/m", 0, limited) == ["--tmpfs", "/m:rw,exec,mode=1777,size=512m"]
    assert in_memory("/m", 0, bare) == ["--tmpfs", "/m:rw,exec,mode=1777"]
