"""A container engine that hangs is asked once in an exchange, which has 30 s, and not for each task."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.clouds.sky.agent import start_task
from starburst.clouds.sky.agent.containers import engine, removal
from starburst.clouds.sky.agent.containers.engine import EngineSilentError, find_engine
from tests.clouds.sky.fake_engine import FakeEngine


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    monkeypatch.setattr(engine, "_hung_at", {})
    monkeypatch.setattr(start_task, "KNOCK_S", 0.3)
    monkeypatch.setattr(removal, "REMOVE_S", 0.3)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setattr("shutil.which", lambda name: name if name == "docker" else None)
    return FakeEngine(tmp_path / "bin")


def calls(docker: FakeEngine) -> int:
    return sum(not line.startswith("--version") for line in (docker.bin / "said").read_text().splitlines())


def test_tasks_that_are_to_start_hear_that_it_does_not_answer(docker: FakeEngine) -> None:
    docker.put("hangs", "")
    reasons = [start_task.why_no_containers() for _ in range(8)]
    assert all("docker does not answer" in reason for reason in reasons)
    assert calls(docker) == 1


def test_containers_that_are_over_are_ended_without_it(docker: FakeEngine, tmp_path: Path) -> None:
    found = find_engine()
    docker.put("hangs", "")
    with pytest.raises(EngineSilentError):
        removal.remove(found, "sb-a-1-0")
    before = calls(docker)
    assert all(removal.remove_container(str(tmp_path), {"name": f"sb-{n}-1-0"}) for n in range(8))
    assert calls(docker) == before


def test_it_is_asked_again_later(docker: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.put("hangs", "")
    assert start_task.why_no_containers()
    (docker.bin / "hangs").unlink()
    assert start_task.why_no_containers()
    monkeypatch.setattr(engine, "HUNG_S", 0.0)
    assert not start_task.why_no_containers()
