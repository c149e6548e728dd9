"""Whom a container runs as: what is given to that user, by root where it can be had, and what is opened."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from starburst.clouds.sky.agent.containers import container_user
from starburst.clouds.sky.agent.containers.container_user import give
from starburst.clouds.sky.agent.separation import RootRefusedError
from starburst.clouds.sky.agent.task_control import take_in
from starburst.clouds.sky.agent.task_dirs import make_checkpoint_dir
from starburst.runs.supervisor.file_owner import hand_over
from tests.clouds.sky.agent_machine import Machine
from tests.clouds.sky.container_task import ContainerTask

with_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


class Root:
    """What is asked of root, and whether it can be had."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.there = True

    def ask(self, verb: str, request: dict[str, Any], *, seconds: float) -> dict[str, bool]:
        assert (verb, seconds) == ("give", 120.0)
        self.asked.append(request)
        if not self.there:
            raise RootRefusedError
        return give(request) if os.geteuid() == 0 else {"given": True}


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Root:
    made = Root()
    monkeypatch.setattr(container_user, "ask_root", made.ask)
    return made


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Root) -> ContainerTask:
    """One with a Secret, and with checkpoints that were brought from elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    made = ContainerTask(tmp_path)
    content = base64.b64encode(b"x").decode()
    file = {"volume": "0", "path": "d/key", "content": content, "mode": None, "secret": True}
    take_in(str(made.dir), cast("Any", {"docker": {"name": "a"}, "files": [file]}))
    (made.checkpoints / "old").mkdir()
    (made.checkpoints / "old").chmod(0o755)  # whatever the umask is that an earlier test left
    (made.checkpoints / "old" / "step").write_text("7")
    (made.checkpoints / "old" / "step").chmod(0o600)
    (made.checkpoints / "last").symlink_to("old/step")
    return made


def ids(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@with_root
def test_a_number_owns_its_secrets_and_checkpoints_with_their_modes(task: ContainerTask, root: Root) -> None:
    task.manifest["securityContext"] = {"runAsUser": 1234, "runAsGroup": 5678}
    assert task.run() == 0
    volume, saved = task.dir / "volumes", task.checkpoints
    for path in (volume / "0" / "d" / "key", saved, saved / "old", saved / "old" / "step", saved / "last"):
        assert ids(path) == (1234, 5678), path
    for path in (volume, volume / "0", volume / "0" / "d"):
        assert ids(path) == (0, 0), "the agent removes what is in it"
    paths = volume / "0" / "d" / "key", saved, saved / "old", saved / "old" / "step"
    assert [mode(path) for path in paths] == [0o400, 0o777, 0o755, 0o600]
    assert len(root.asked) == 1


@with_root
def test_the_agent_does_it_when_it_is_asked_as_root(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home")
    key, saved = machine.dir / "volumes/0/key", machine.home / "starburst/checkpoints/a"
    for path in (key, saved / "step"):
        path.parent.mkdir(parents=True)
        path.touch()
    request = {"path": str(machine.dir), "uid": 1234, "gid": 5, "checkpoints": str(saved)}
    told = json.dumps(request)
    subprocess.run(machine.argv("give"), input=told, text=True, check=True, stdout=subprocess.DEVNULL)
    assert [ids(path) for path in (key, saved, saved / "step")] == [(1234, 5)] * 3


@with_root
def test_a_user_of_the_image_that_is_a_number_leaves_the_group_as_it_is(task: ContainerTask) -> None:
    task.engine.put("user", "1000")
    assert task.run() == 0
    assert ids(task.dir / "volumes/0/d/key") == (1000, 0)
    assert mode(task.dir / "volumes/0/d/key") == 0o400


def test_a_root_without_capabilities_is_given_both_and_one_that_has_them_the_files(
    task: ContainerTask, root: Root
) -> None:
    task.manifest["securityContext"] = {"capabilities": {"drop": ["ALL"]}}
    task.run()
    given = {"path": str(task.dir), "uid": 0, "gid": -1}
    assert root.asked == [{**given, "checkpoints": str(task.checkpoints)}]
    task.manifest["securityContext"] = {}
    task.run()
    assert root.asked[1] == {**given, "checkpoints": None}


def test_root_is_not_asked_for_nothing(task: ContainerTask, root: Root) -> None:
    (task.dir / "files.json").unlink()
    assert task.run() == 0
    assert root.asked == []


@pytest.mark.parametrize("user", ["1000", "app:users", "root"])
def test_what_cannot_be_given_is_open_to_whom_the_image_runs_as_alone(
    task: ContainerTask, root: Root, user: str
) -> None:
    """There is no root, or the image alone knows the number."""
    root.there = False
    task.engine.put("user", user)
    if user == "root":
        task.manifest["securityContext"] = {"capabilities": {"drop": ["ALL"]}}
    (task.checkpoints / "old").chmod(0o700)
    elsewhere = task.home / "elsewhere"
    elsewhere.write_text("")
    elsewhere.chmod(0o600)
    (task.checkpoints / "out").symlink_to(elsewhere)
    assert task.run() == 0
    volume, saved = task.dir / "volumes", task.checkpoints
    paths = volume, volume / "0" / "d", volume / "0" / "d" / "key"
    assert [mode(path) for path in paths] == [0o700, 0o755, 0o444]
    assert [mode(path) for path in (saved, saved / "old", saved / "old" / "step")] == [0o777, 0o777, 0o666]
    assert mode(elsewhere) == 0o600, "links lead out, and nothing follows them"
    assert len(root.asked) == (user != "app:users")


def test_a_secret_stays_closed_where_root_cannot_be_had_and_modes_do_not_count(
    task: ContainerTask, root: Root
) -> None:
    root.there = False
    assert task.run() == 0
    assert mode(task.dir / "volumes/0/d/key") == 0o400


def test_checkpoints_are_in_a_directory_of_the_machines_user_alone_and_a_bucket_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for above in ("starburst/checkpoints", "bucket/checkpoints"):
        (tmp_path / above).mkdir(parents=True)
        (tmp_path / above).chmod(0o755)
        make_checkpoint_dir(str(tmp_path / above / "a"))
    assert mode(tmp_path / "starburst/checkpoints") == 0o700
    assert mode(tmp_path / "bucket/checkpoints") == 0o755
    assert (tmp_path / "bucket/checkpoints/a").is_dir()


@with_root
def test_what_was_given_to_another_stays_that_ones(tmp_path: Path) -> None:
    for name, owner in (("mine", 0), ("theirs", 77)):
        (tmp_path / name).touch()
        os.chown(tmp_path / name, owner, owner)
    hand_over(str(tmp_path), 1234, -1, 0o777)
    assert [ids(tmp_path / name) for name in ("mine", "theirs", "")] == [(1234, 0), (77, 77), (1234, 0)]
