"""A task's report on its machine: where it is written, and what the agent gives back (real processes)."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from starburst.clouds.sky.agent.progress_file import hear, report_path
from starburst.clouds.sky.runs.docker import container
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from starburst.runs.supervisor.progress_report import MAX_BYTES, digest
from tests.clouds.sky.agent_machine import NAME, Machine, spec
from tests.clouds.sky.fake_engine import FakeEngine

#: As a watched loop does it.
REPLACES = 'echo {} >"$STARBURST_REPORT.1" && mv "$STARBURST_REPORT.1" "$STARBURST_REPORT"'


@pytest.mark.processes
def test_a_task_has_a_file_to_report_to_and_the_agent_gives_it_back_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home")
    machine.exchange(lease_s=100, specs={NAME: spec("sh", "-c", REPLACES, STARBURST_REPORT="/the/users")})
    assert machine.exchange(hear={NAME: ""})["report"] is None
    machine.finish()
    assert machine.exchange()["report"] is None
    assert base64.b64decode(machine.exchange(hear={NAME: ""})["report"]) == b"{}\n"
    assert machine.exchange(hear={NAME: digest(b"{}\n")})["report"] is None


@pytest.mark.processes
def test_a_container_is_shown_the_directory_of_its_report_whoever_it_runs_as(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home")
    engine = FakeEngine(machine.home / "bin")
    engine.runs(f'echo {{}} >"{machine.dir}/report/report.json"')
    set_by_user = {"STARBURST_REPORT": "/x"}
    made = container("sb-a-1-0", Workload(("train",), image="me/train:2"), Resources(), set_by_user)
    assert "STARBURST_REPORT=/starburst/report/report.json" in made["env_file"].splitlines()
    machine.exchange(lease_s=100, specs={NAME: spec(docker=made)})
    machine.finish()
    assert f"|-v|{machine.dir}/report:/starburst/report|" in "|".join(engine.called("create"))
    assert base64.b64decode(machine.exchange(hear={NAME: ""})["report"]) == b"{}\n"
    assert (machine.dir / "report").stat().st_mode & 0o777 == 0o777


def test_what_is_no_plain_file_or_too_large_is_no_report(tmp_path: Path) -> None:
    path = Path(report_path(str(tmp_path)))
    assert hear(str(tmp_path), "") is None, "no task has begun"
    path.parent.mkdir()
    (tmp_path / "secret").write_text("{}")
    path.symlink_to(tmp_path / "secret")
    assert hear(str(tmp_path), "") is None, "a link"
    path.unlink()
    os.mkfifo(path)
    assert hear(str(tmp_path), "") is None, "a pipe"
    path.unlink()
    path.mkdir()
    assert hear(str(tmp_path), "") is None, "a directory"
    path.rmdir()
    path.write_bytes(b" " * (MAX_BYTES + 1))
    assert hear(str(tmp_path), "") is None, "too large"
    path.write_bytes(b" " * MAX_BYTES)
    assert hear(str(tmp_path), "") is not None
