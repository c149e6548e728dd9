"""The archive that is sent to machines: the standard library and itself, on a Python with nothing else."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from starburst.clouds.sky.access.agent_archive import agent_archive, agent_path
from tests.clouds.sky.agent_machine import let_accounts_reach

#: The oldest Python of a machine: SkyPilot's own.
OLDEST = (3, 9)
#: Added to the standard library after that, or changed so that a use of them fails there.
TOO_NEW = {"tomllib", "graphlib.TopologicalSorter"}
#: Interpreters that this machine may have beside the one of the tests.
OTHERS = ("/usr/bin/python3", *map(str, Path.home().glob(".pyenv/versions/3.9.*/bin/python3")))


@cache
def sources() -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(agent_archive())) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def modules() -> set[str]:
    return {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in sources()
        if name != "__main__.py"
    }


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", sorted(sources()))
def test_a_module_of_the_agent_imports_the_standard_library_and_what_is_sent_with_it(name: str) -> None:
    for what in imported(ast.parse(sources()[name])):
        if what.startswith("starburst."):
            assert what in modules() or what.rpartition(".")[0] in modules()
        else:
            assert what.partition(".")[0] in sys.stdlib_module_names
            assert what not in TOO_NEW


@pytest.mark.parametrize("name", sorted(sources()))
def test_a_module_of_the_agent_has_the_syntax_of_the_oldest_python_of_a_machine(name: str) -> None:
    tree = ast.parse(sources()[name], feature_version=OLDEST)
    if sources()[name]:
        assert "from __future__ import annotations" in sources()[name] or len(tree.body) == 1
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            names = {keyword.arg for keyword in node.keywords}
            assert not names & {"slots", "kw_only", "strict"}, "of Python 3.10"
            if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
                assert not isinstance(node.args[1], ast.BinOp), "X | Y is no type before Python 3.10"
        assert type(node).__name__ not in ("Match", "TryStar"), "of Python 3.10"


def test_its_bytes_depend_on_its_sources_alone() -> None:
    first = agent_archive()
    agent_archive.cache_clear()
    assert agent_archive() == first
    assert agent_path().startswith("~/starburst/agent-")
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.namelist() == sorted(archive.namelist())


@pytest.mark.processes
@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_a_bare_python_runs_it(tmp_path: Path, python: str) -> None:
    if not Path(python).exists():
        pytest.skip("not on this machine")
    let_accounts_reach(tmp_path)
    agent = tmp_path / "agent.pyz"
    agent.write_bytes(agent_archive())
    ask = {"lease_s": 100, "specs": {"a/1/0": SPEC}}
    # A login may leave SIGCHLD ignored.
    argv = ["env", "--ignore-signal=CHLD", python, "-I", "-S", str(agent)]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def exchange(ask: object) -> dict[str, object]:
        done = subprocess.run(
            [*argv, "exchange"], input=json.dumps(ask), capture_output=True, text=True, check=True, env=env
        )
        answer: dict[str, object] = json.loads(done.stdout)["ranks"]["a/1/0"]
        return answer

    assert not exchange(ask)["began"]
    give_up = time.monotonic() + 60
    while not (state := exchange({"starts": ["a/1/0"], "look": {"a/1/0": 0}}))["over"]:
        assert time.monotonic() < give_up, (tmp_path / "starburst/runs/a/1/0/log").read_text()
    assert state["exit"]["exit_code"] == 7, state  # type: ignore[index]


SPEC = {
    "command": ["sh", "-c", "exit 7"],
    "cwd": None,
    "env": {},
    "gpus": 0,
    "cpus": 0,
    "checkpoints": "~/starburst/checkpoints/a",
    "docker": None,
    "grace_s": 5.0,
    "time_limit_s": None,
}
