"""The directory with the compiled copy: made once for each version of the sources, Python and mypyc."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sim.compiled.sources import is_compiled, native, reached
from sim.errors import SimulationError

ROOT = Path(__file__).parents[2]
NEEDS = "--engine: compiled: needs mypyc: pip install starburst-hybrid[compiled]; choose core"
HOMELESS = "--engine: compiled: there is no home to keep it in; set XDG_CACHE_HOME, or choose core"
HOUR_S = 3600.0
SETTINGS = "[mypy]\nfollow_imports = silent\nignore_missing_imports = true\ncache_dir = /dev/null\n"
#: More optimisation than -O1 makes the code no faster, and takes longer.
PROGRAM = """
import sys
from mypyc.build import mypycify
from setuptools import setup
extensions = mypycify(["--config-file", "mypy.ini", *sys.argv[1:]], opt_level="1", debug_level="0")
setup(name="core", script_args=["-q", "build_ext", "--inplace"], packages=[], ext_modules=extensions)
"""


def ready() -> Path | None:
    """The compiled copy of these sources; None if it has not been made."""
    try:
        where = _where()
    except SimulationError:
        return None
    return where if where.is_dir() else None


def made() -> Path:
    """The compiled copy; the first call takes some minutes. Processes that begin together make it once.

    Raises:
        SimulationError: mypyc or a C compiler is missing, or it cannot be made or kept.
    """
    where = _where()
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with (where.parent / "core.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not where.is_dir():
                _make(where)
    except OSError as error:
        raise SimulationError(f"--engine: compiled: {where}: {error.strerror}; choose core") from None
    except subprocess.TimeoutExpired:
        raise SimulationError("--engine: compiled: was not made within an hour; choose core") from None
    return where


def copy(tree: Path) -> list[str]:
    """Write the sources into a directory, the core's for mypyc; returns the files to be compiled."""
    for name in reached(ROOT):
        source = (ROOT / name).read_text(encoding="utf-8")
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(native(source) if is_compiled(name) else source, encoding="utf-8")
    return [*filter(is_compiled, reached(tree))]


def _where() -> Path:
    try:
        tools = [version(name) for name in ("mypy", "setuptools")]
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except PackageNotFoundError:
        raise SimulationError(NEEDS) from None
    except RuntimeError:  # a user without a home
        raise SimulationError(HOMELESS) from None
    told = hashlib.sha256(" ".join([sys.version, *tools]).encode())
    for name in (*reached(ROOT), "sim/compiled/build.py", "sim/compiled/sources.py"):
        told.update((ROOT / name).read_bytes())
    return caches / "starburst" / f"core-{told.hexdigest()[:16]}"


def _make(where: Path) -> None:
    for left in where.parent.glob("making-*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=where.parent, prefix="making-") as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        files = copy(tree)
        (tree / "mypy.ini").write_text(SETTINGS)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *files],
            cwd=tree,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HOUR_S,
            check=False,
        )
        if done.returncode:
            said = (done.stdout.strip() or "no word").splitlines()[-1]
            raise SimulationError(f"--engine: compiled: cannot be compiled here: {said}; choose core")
        shutil.rmtree(tree / "build", ignore_errors=True)
        tree.rename(where)
