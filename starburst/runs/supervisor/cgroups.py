"""A control group (version 2) per task: all that is in it can be killed at one stroke.

A process stays in its group through fork, exec and setsid, with whatever environment and limits, so the group
finds what no other mark of a task finds. `cgroup.kill` needs a kernel from 5.14 on.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

PREFIX = "starburst-"


@cache
def parent() -> Path | None:
    """The group of this process, if it may make groups below it that can be killed; else None."""
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
    """The group for the task in this directory; None if this process can make none."""
    above = parent()
    return None if above is None else str(above / name_of(directory))


def name_of(directory: Path) -> str:
    """The name of the group for the task in this directory."""
    return PREFIX + hashlib.sha256(str(directory).encode()).hexdigest()[:24]


def recorded(group: object, directory: Path) -> Path | None:
    """The group that a spec names, if its name is the one of the task in this directory."""
    path = Path(group) if isinstance(group, str) else None
    return path if path is not None and path.is_absolute() and path.name == name_of(directory) else None


def join(group: str) -> None:
    """Move this process to a group, which is made if it is missing.

    Raises:
        OSError: it may not.
    """
    os.makedirs(group, exist_ok=True)
    with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write("0")


def remove(group: str) -> None:
    """Remove a group that is empty."""
    with suppress(OSError):
        os.rmdir(group)


def kill(group: Path) -> bool:
    """SIGKILL all that is in a group; whether there was anything. A group that is empty is removed.

    Raises:
        OSError: it cannot be told, as for want of open files.
    """
    try:
        if "populated 0" in (group / "cgroup.events").read_text().splitlines():
            remove(str(group))
            return False
        (group / "cgroup.kill").write_text("1")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def ran_out_of_memory(group: str) -> bool:
    """Whether the kernel killed something in a group because the memory of the group was used up."""
    try:
        lines = Path(group, "memory.events").read_text().splitlines()
    except OSError:  # it has no limit, or is gone
        return False
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)


def mount() -> tuple[Path, str]:
    """Where the hierarchy of version 2 is mounted, and which of its groups is seen there.

    Raises:
        LookupError: it is mounted nowhere.
    """
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        if right.startswith("cgroup2 "):
            return Path(point), root
    raise LookupError("cgroup2")


def _own() -> Path:
    """The directory of this process's own group."""
    groups = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((group[3:] for group in groups if group.startswith("0::")), "/")
    point, root = mount()
    return point / os.path.relpath(own, root)
