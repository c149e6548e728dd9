"""What is installed without extras suffices for the commands that a newcomer tries first."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions, requires
from pathlib import Path

import pytest

#: Runs the command line in a process in which the modules of its first argument cannot be imported.
ALONE = """
import sys
from importlib.abc import MetaPathFinder

hidden = set(sys.argv[1].split(","))

class Hider(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}: it is of an extra", name=name)

sys.meta_path.insert(0, Hider())
from starburst.cli.main import run
sys.argv = ["starburst", *sys.argv[2:]]
run()
"""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _names(needs: list[str] | None) -> set[str]:
    """The distributions that are needed without extras; those for other systems or Pythons do no harm."""
    found = (re.match(r"[A-Za-z0-9._-]+", need) for need in needs or [] if "extra ==" not in need)
    return {_canonical(match.group()) for match in found if match}


def _base() -> set[str]:
    """The distributions of the base install."""
    found: set[str] = set()
    ahead = [_canonical("starburst-hybrid")]
    while ahead:
        name = ahead.pop()
        try:
            distribution(name)
        except ImportError:
            continue  # for another system
        found.add(name)
        ahead += _names(requires(name)) - found
    return found


def _hidden() -> set[str]:
    """Top-level modules of distributions that the base install lacks."""
    base = _base()
    provided = packages_distributions().items()
    return {module for module, by in provided if not {_canonical(name) for name in by} & base}


@pytest.fixture(scope="module")
def hidden() -> str:
    found = _hidden()
    assert {"kubernetes", "aiohttp"} <= found  # else nothing is hidden
    assert not found & {"sqlalchemy", "pydantic", "typer", "anyio", "starburst"}
    return ",".join(sorted(found))


def _run(hidden: str, home: Path, *words: str) -> str:
    env = {"STARBURST_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, hidden, *words],
        capture_output=True,
        text=True,
        cwd=home,
        env=env,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_config_of_a_newcomer_is_made_and_checked(hidden: str, tmp_path: Path) -> None:
    _run(hidden, tmp_path, "config", "init")
    assert "starburst.yaml" in _run(hidden, tmp_path, "config", "check", "starburst.yaml")


def test_the_demo_runs(hidden: str, tmp_path: Path) -> None:
    assert "succeeded" in _run(hidden, tmp_path, "demo", "--jobs", "3", "--out", "out")
