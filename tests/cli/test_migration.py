"""docs/migration.md is true: what each row says is typed here, at one session of `starburst up`."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.cli.main import COMMANDS
from tests.cli.conftest import Cli
from tests.cli.migration_rows import ELSEWHERE, REAL, ROWS
from tests.cli.test_life import until
from tests.runs.harness import ending_what_is_left

ROOT = Path(__file__).parents[2]
CONFIG = """
policy: {waiting: constant, factor: 50}
cluster: {nodes: [{name: node, gpus: 2, gpu_type: V100, cpus: 16}, {name: cpu, gpus: 0, cpus: 16}]}
cloud: {kind: none}
http: {enabled: false}
"""
PATIENCE_S = 60.0
#: Commands that change nothing.
LOOKS = ("status", "explain", "logs", "events", "nodes", "queues", "top")
SCRIPT = "#!/bin/bash\n#SBATCH --job-name=script\n#SBATCH --gpus=2\nhostname\n"


#: Rows of the tables as (what is typed elsewhere, the cell with what it is here).
TABLE = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (ROOT / "docs" / "migration.md").read_text(encoding="utf-8").replace("\\|", "/").splitlines()
    if line.startswith("| `")
]


def commands(cell: str) -> list[list[str]]:
    """The commands in a cell; one that begins with a subcommand is short for `starburst` and it."""
    typed = [shlex.split(text) for text in re.findall(r"`([^`]+)`", cell)]
    whole = [words[1:] for words in typed if words[0] == "starburst"]
    return whole + [words for words in typed if words[0] in COMMANDS and len(words) > 1]


def key(cell: str) -> str:
    """The first thing that is typed elsewhere, which names the row."""
    return re.findall(r"`([^`]+)`", cell)[0]


@pytest.fixture
def session(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`starburst up` in a directory with the files that the rows name."""
    monkeypatch.chdir(tmp_path)
    examples = ROOT / "configs" / "examples"
    for name, example in (("task", "sky-task"), ("job", "fine-tune"), ("rayjob", "ray-job")):
        (tmp_path / f"{name}.yaml").write_text((examples / f"{example}.yaml").read_text())
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "starburst.yaml").write_text(CONFIG)
    log = tmp_path / "up.log"
    command = [sys.executable, "-m", "starburst", "up", "--config", "starburst.yaml"]
    with ending_what_is_left(home), log.open("w") as err:
        process = subprocess.Popen(command, stderr=err, env={**os.environ})
        try:
            until(lambda: '"synced"' in log.read_text() or process.poll() is not None, PATIENCE_S)
            yield
        finally:
            process.kill()
            process.wait()


def entered(words: list[str]) -> str:
    """What a command prints that enters a job, and so takes the place of its process."""
    command = [sys.executable, "-m", "starburst", *words]
    done = subprocess.run(
        command, input="echo in the shell\nexit\n", capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


class Typist:
    """Types lines, each once; what is only looked at is looked at until it is as expected."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._told: dict[str, str] = {}

    def type(self, line: str, expected: str) -> str:
        """What a line prints, or how it failed."""
        if line not in self._told:
            self._told[line] = self._run(line)
        if line.split(maxsplit=1)[0] in LOOKS:
            until(lambda: self._matches(line, expected) or self._again(line), PATIENCE_S)
        return self._told[line]

    def _matches(self, line: str, expected: str) -> bool:
        return re.search(expected, self._told[line], re.MULTILINE) is not None

    def _again(self, line: str) -> bool:
        self._told[line] = self._run(line)
        return False

    def _run(self, line: str) -> str:
        words = shlex.split(line)
        if words[0] in ("exec", "shell"):
            return entered(words)
        if words[0] == "submit" and ("--" in words or words[-1] == "job.sh"):
            words.insert(1, "--no-workdir")
        answer = self._cli(*words)
        return answer.out + answer.err if answer.code == 0 else f"exit code {answer.code}: {answer.err}"


@pytest.mark.processes
def test_every_row_is_run_in_one_session(session: None, cli: Cli) -> None:
    typist = Typist(cli)
    done = typist.type("submit --wait -o name --name done -- echo hello", "")
    typist.type("submit --name train --gpus 2 -- sleep 300", "")
    typist.type("submit --name later --gpus 2 -- true", "")
    typist.type("status train", "runs on node")
    names = {"user": getpass.getuser(), "done": done.split()[0].removeprefix("job/")}
    wrong = {
        f"{row}: starburst {line}": printed
        for row, runs in ROWS.items()
        for line, expected in runs
        if not re.search(expected, printed := typist.type(line.format(**names), expected), re.MULTILINE)
    }
    assert wrong == {}


def test_each_row_has_its_run_or_names_the_test_that_has_it() -> None:
    listed = [key(cell) for cell, _ in TABLE]
    assert len(listed) >= 40
    assert sorted(listed) == sorted([*ROWS, *ELSEWHERE])
    assert {*REAL} <= {*listed}
    for test in (*ELSEWHERE.values(), *REAL.values()):
        assert (ROOT / test).is_file()


def test_each_command_of_a_row_is_among_its_runs() -> None:
    for cell, here in TABLE:
        run = [set(shlex.split(line)) for line, _ in ROWS.get(key(cell), ())]
        for words in commands(here) if key(cell) in ROWS else ():
            own = words[: words.index("--")] if "--" in words else words
            needed = {word for word in own if word.startswith("-")} | {words[0]}
            assert any(needed <= ran for ran in run), (cell, words)
