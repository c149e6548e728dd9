"""What goes along with a job without an image arrives on its machine: as submitted, by the real agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.app.directories.packing import SubmittersFiles
from starburst.clouds.sky.runs.spec import spec_of
from starburst.core.model.actions import Slot
from starburst.domain.job import Submission
from starburst.runs.ports import Run
from tests.clouds.sky.agent_machine import NAME, Machine, text
from tests.translator.kinds.running import read
from translator.intake.texts import read_firsts
from translator.kinds.conversion import command_manifest
from translator.kinds.overrides import NONE
from translator.kinds.prelude import MAX_PACKED

pytestmark = pytest.mark.processes


def on_machine(machine: Machine, item: Submission) -> Any:
    """The task of the job, as its machine is sent it, run to its end; its answer."""
    slot = Slot(0, "i-1", item.job.tasks[0])
    spec = spec_of(Run(item.job, 1, (slot,), item.workload), slot, [], bucket=False, peers={})
    machine.exchange(lease_s=100, specs={NAME: spec}, look={})
    machine.finish()
    return machine.exchange()


def command(directory: Path, *words: str) -> Submission:
    manifest = command_manifest(words, "train", SubmittersFiles(str(directory)), NONE)
    (item,) = read_firsts(yaml.safe_dump(manifest), "the command", suffix=lambda: "a1b2c")
    return Submission(item.job, item.workload, ())


def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "lib").mkdir(parents=True)
    (directory / "lib" / "data").write_bytes(bytes(range(256)))
    (directory / "run.sh").write_text(
        "#!/bin/sh\nwc -c <lib/data; ls -A; echo $1; env | grep -c FILES_; exit 0\n"
    )
    (directory / "run.sh").chmod(0o755)
    (directory / ".gitignore").write_text("*.secret\n")
    (directory / "my.secret").write_text("x")
    return directory


def test_a_command_begins_in_its_directory_also_in_the_largest_that_is_taken(
    tmp_path: Path, machine: Machine
) -> None:
    directory = project(tmp_path)
    (directory / "large").write_bytes(os.urandom(MAX_PACKED - 3000))
    item = command(directory, "./run.sh", "a b")
    assert item.workload.image is None
    answer = on_machine(machine, item)
    assert text(answer) == "256\n.gitignore\nlarge\nlib\nrun.sh\na b\n0\n"
    assert answer["exit"]["exit_code"] == 0


def test_a_skypilot_task_finds_its_workdir_and_its_file_mounts(tmp_path: Path, machine: Machine) -> None:
    (tmp_path / "token").write_text("abc\n")
    task = {
        "workdir": str(project(tmp_path)),
        "file_mounts": {
            "~/data": str(tmp_path / "project" / "lib"),
            "~/.conf/token": str(tmp_path / "token"),
        },
        "run": "wc -c <lib/data; wc -c <~/data/data; cat ~/.conf/token",
    }
    item = read(yaml.safe_dump(task), "task.yaml", SubmittersFiles(say=lambda _: None))
    answer = on_machine(machine, item)
    assert text(answer) == "256\n256\nabc\n"
