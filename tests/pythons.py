"""Runs the fast part of the tests on the oldest and the newest supported Python of this machine.

    python -m tests.pythons [--all] [PYTEST ARGUMENTS]

Each has a venv of its own, `.venv-3.x`, with the locked packages, and compiles all sources first. Pythons are
found on the PATH and among those of pyenv and uv.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Those that the metadata names.
SUPPORTED = [(3, minor) for minor in range(10, 15)]
#: The packages that are shipped.
SOURCES = ["starburst", "sim", "translator", "chakra_plugin"]
#: Tests that take seconds and need no servers.
FAST = [
    "tests/domain",
    "tests/policy",
    "tests/store",
    "tests/runs",
    "tests/test_iterator.py",
    "tests/test_aio.py",
    "tests/test_aio_threads.py",
]
ASK = "import sys; print(*sys.version_info[:2])"


def main(arguments: list[str]) -> int:
    """Run the tests; the exit code of the first run that fails."""
    found = pythons()
    everyone = arguments[:1] == ["--all"]
    chosen = sorted(found) if everyone else sorted({min(found), max(found)})
    for version in chosen:
        name = ".".join(map(str, version))
        print(f"\n--- Python {name}: {found[version]}", flush=True)
        python = environment(Path(f".venv-{name}"), found[version])
        tests = arguments[everyone:] or FAST
        for work in (["compileall", "-q", *SOURCES], ["pytest", *tests]):
            code = subprocess.run([str(python), "-m", *work], check=False).returncode
            if code:
                return code
    return 0


def pythons() -> dict[tuple[int, int], Path]:
    """The supported Pythons of this machine by version."""
    found = {sys.version_info[:2]: Path(sys.executable)}
    folders = [
        *map(Path, os.environ.get("PATH", "").split(os.pathsep)),
        *Path.home().glob(".pyenv/versions/*/bin"),
        *Path.home().glob(".local/share/uv/python/*/bin"),
    ]
    for major, minor in SUPPORTED:
        for path in (folder / f"python{major}.{minor}" for folder in folders):
            if (major, minor) not in found and version_of(path) == (major, minor):
                found[major, minor] = path
    return found


def version_of(path: Path) -> tuple[int, ...]:
    """The version that a program states; () if it is no Python, as a shim for one that is missing."""
    if not path.exists():
        return ()
    asked = subprocess.run([path, "-c", ASK], capture_output=True, text=True, check=False, timeout=60)
    return tuple(map(int, asked.stdout.split())) if asked.returncode == 0 else ()


def environment(place: Path, base: Path) -> Path:
    """The Python of a venv with the locked packages, made if it is missing or older than the lock."""
    python, made, lock = place / "bin" / "python", place / ".made", Path("requirements/dev.txt")
    if not made.exists() or made.stat().st_mtime < lock.stat().st_mtime:
        uv = [sys.executable, "-m", "uv", "--quiet"]
        subprocess.run([*uv, "venv", "--clear", "--python", base, place], check=True)
        install = [*uv, "pip", "install", "--python", python]
        subprocess.run([*install, "--require-hashes", "-r", lock], check=True)
        subprocess.run([*install, "--no-deps", "--no-build-isolation", "--editable", "."], check=True)
        made.touch()
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
