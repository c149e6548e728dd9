"""`starburst export`: a line of JSON for each ended job."""

from __future__ import annotations

import json
import stat
from pathlib import Path

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
