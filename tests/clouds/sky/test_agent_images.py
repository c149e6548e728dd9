"""What a machine's agent knows of images, and pulls ahead of their tasks; the engine is a stand-in."""

from __future__ import annotations

import json
import subprocess
import time
from hashlib import sha256
from pathlib import Path

import pytest

from starburst.clouds.sky.agent.containers import engine, image, prefetch
from starburst.clouds.sky.agent.containers.engine import Engine
from starburst.clouds.sky.agent.containers.images import MOST, known_images, note_image
from tests.clouds.sky.agent_machine import PATIENCE_S, Machine
from tests.clouds.sky.container_task import ContainerTask, Told
from tests.clouds.sky.fake_engine import FakeEngine

LOGIN = {"registry": "docker.io", "username": "ada", "password": "word"}


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerTask:
    made = ContainerTask(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", made.engine.path)
    monkeypatch.setattr(prefetch, "PAUSES_S", (0.01, 0.01))
    for module, name in ((prefetch, "LOOK_S"), (prefetch, "AGAIN_S"), (image, "LOOK_S")):
        monkeypatch.setattr(module, name, 0.01)
    return made


def ahead(home: Path, name: str = "me/train:2") -> Path:
    """The directory of an image that is to be pulled ahead."""
    directory = home / "starburst/images" / sha256(name.encode()).hexdigest()[:16]
    directory.mkdir(parents=True)
    (directory / "image.json").write_text(json.dumps({"image": name, "logins": [LOGIN]}))
    return directory


def test_a_task_notes_its_image_and_the_seconds_of_a_pull(task: ContainerTask) -> None:
    task.run()
    assert known_images() == {"me/train:2": None}
    (task.engine.bin / "image").unlink()
    task.engine.put("pull", "sleep 0.05")
    task.run(name="me/other:1")
    seconds = known_images()["me/other:1"]
    assert seconds is not None
    assert 0.05 <= seconds < PATIENCE_S


def test_images_that_the_engine_has_no_more_are_dropped(task: ContainerTask) -> None:
    docker = Engine("docker", ("docker",))
    note_image(docker, "a:1", 3.0)
    note_image(docker, "a:1", None)
    assert known_images() == {"a:1": 3.0}
    (task.engine.bin / "image").unlink()
    note_image(docker, "b:1", None)
    assert known_images() == {"b:1": None}


def test_what_a_job_put_in_place_of_the_note_is_no_note(task: ContainerTask) -> None:
    for text in ("[]", '{"images": 3}', '{"images": {"a": "x"}}', "{"):
        (task.home / "starburst/images.json").write_text(text)
        assert known_images() == ({"a": None} if '"x"' in text else {})
    many = {f"i:{n}": 1.0 for n in range(MOST)}
    (task.home / "starburst/images.json").write_text(json.dumps({"images": many}))
    note_image(Engine("docker", ("docker",)), "a:1", None)
    assert len(known_images()) == MOST


def test_an_image_is_pulled_with_its_login_of_which_nothing_stays(task: ContainerTask) -> None:
    (task.engine.bin / "image").unlink()
    directory = ahead(task.home)
    prefetch.prefetch(str(directory))
    assert list(known_images()) == ["me/train:2"]
    assert "auths" in (task.engine.bin / "logins").read_text()
    assert [path.name for path in directory.iterdir()] == []


def test_a_pull_that_fails_leaves_the_words_to_the_task(task: ContainerTask) -> None:
    (task.engine.bin / "image").unlink()
    task.engine.put("pull", "echo denied >&2; exit 1")
    directory = ahead(task.home)
    prefetch.prefetch(str(directory))
    assert known_images() == {}
    assert [path.name for path in directory.iterdir()] == []
    assert len([call for call in task.engine.said if "pull" in call]) == 3


def test_an_engine_that_is_still_starting_is_waited_for_and_not_for_ever(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task.engine.put("dead", "")
    monkeypatch.setattr(prefetch, "LIMIT_S", 0.1)
    monkeypatch.setattr(engine, "_prefixes", lambda _program: [()])
    prefetch.prefetch(str(ahead(task.home)))
    assert known_images() == {}


def test_a_task_waits_for_the_pull_that_was_begun_ahead_and_says_how_far_it_is(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home")
    docker = FakeEngine(machine.home / "bin")
    (docker.bin / "image").unlink()
    docker.put("pull", f"while [ ! -e {docker.bin}/go ]; do sleep 0.02; done")
    asked = json.dumps({"images": [{"image": "a:1", "logins": []}]})
    for begun in (1, 0):
        done = subprocess.run(
            machine.argv("pull"), input=asked, env=machine.env(), text=True, capture_output=True, check=True
        )
        assert json.loads(done.stdout) == {"begun": begun}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(machine.home))
        said: list[str] = []

        def wait(_seconds: float) -> None:
            time.sleep(0.02)
            if any(why == 'Pulling image "a:1"' for why in said):
                (docker.bin / "go").touch()

        prefetch.await_end("a:1", said.append, wait)
        assert list(known_images()) == ["a:1"]


def test_a_login_of_a_pull_that_was_killed_is_gone_once_a_task_has_come_for_its_image(
    task: ContainerTask,
) -> None:
    directory = ahead(task.home)
    (directory / "registry").mkdir()
    (directory / "registry" / "config.json").write_text("{}")
    prefetch.await_end("me/train:2", [].append, Told().wait)
    assert [path.name for path in directory.iterdir()] == ["lock"]


def test_a_stop_ends_the_wait_for_it(task: ContainerTask) -> None:
    del task
    told = Told(0)
    prefetch.await_end("nothing is pulled:1", [].append, told.wait)
    assert not told.waits
