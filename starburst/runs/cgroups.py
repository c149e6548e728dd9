"""A control group (version 2) per task, if this process may make them: it can be killed as a whole."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

PREFIX = "starburst-"


@cache
def parent() -> Path | None:
    """Where this process may make groups that can be killed; None if it may not, or the kernel cannot."""
    try:
        own = _own()
        trial = own / f"{PREFIX}trial-{os.getpid()}"
        trial.mkdir()
        try:
            able = (trial / "cgroup.kill").exists() and os.access(own / "cgroup.procs", os.W_OK)
        finally:
            trial.rmdir()
    except (OSError, LookupError):
        return None
    return own if able else None


def group_of(directory: Path) -> str | None:
    """The group for the task in this directory; None if there can be none."""
    above = parent()
    return None if above is None else str(above / _name(directory))


def recorded(group: object, directory: Path) -> Path | None:
    """The group that a spec names, if it is one that the task in this directory may have been given."""
    path = Path(group) if isinstance(group, str) else None
    return path if path is not None and path.is_absolute() and path.name == _name(directory) else None


def kill(group: Path) -> bool:
    """SIGKILL all that is in a group; whether there was anything. A group that is empty is removed."""
    try:
        if "populated 0" in (group / "cgroup.events").read_text().splitlines():
            with suppress(OSError):
                group.rmdir()
            return False
        (group / "cgroup.kill").write_text("1")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _own() -> Path:
    """The directory of this process's own group.

    Raises:
        LookupError: no hierarchy of version 2 is mounted.
    """
    groups = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((group.removeprefix("0::") for group in groups if group.startswith("0::")), "/")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        if right.startswith("cgroup2 "):
            return Path(point) / os.path.relpath(own, root)
    raise LookupError("cgroup2")


def _name(directory: Path) -> str:
    return PREFIX + hashlib.sha256(str(directory).encode()).hexdigest()[:24]
