"""`starburst export`: a line of JSON for each ended job."""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import one_line
from tests.cli.conftest import Cli
from tests.cli.past import Past


def test_ended_jobs_are_lines_with_their_record_and_decisions(cli: Cli, past: Past, tmp_path: Path) -> None:
    past.morning()
    file = tmp_path / "jobs.jsonl"
    assert cli("export", file).out == f"{file}: 2 jobs\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    jobs = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(job["id"], job["phase"]) for job in jobs] == [
        ("done-11111", "succeeded"),
        ("bad-22222", "failed"),
    ]
    assert [one["kind"] for one in jobs[0]["decisions"]][-1] == "succeeded"
    assert jobs[1]["record"]["job"]["user"] == "bob"
    assert jobs[1]["workload"]["command"] == ["true"]
    assert cli("export").out == file.read_text()


def test_a_file_that_is_there_is_left_alone(cli: Cli, past: Past, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    assert one_line(cli("export", tmp_path / "mine")).endswith(
        "cannot be made (File exists); name a new file"
    )


def test_half_of_a_file_is_not_left_behind(
    cli: Cli, past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(*_: object) -> Iterator[dict[str, Any]]:
        yield {"id": "done-11111"}
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("starburst.cli.service.export.ended_jobs", some)
    file = tmp_path / "jobs.jsonl"
    said = one_line(cli("export", file))
    assert said == f"{file}: cannot be written (No space left on device); free room, or name another file"
    assert not file.exists()
