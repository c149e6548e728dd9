"""A control group (version 2) of the machine for all its runs, in which each task gets a group of its own.

A machine's user may seldom make groups where its sessions are, so the group is made at the top of the
hierarchy, by sudo if that needs no password, and handed to the user: this is delegation as cgroups(7) has it.
The process that runs a task moves there itself, and may then move its children to groups below. Where this is
not possible (no sudo, no version 2, a kernel before 5.14) tasks have no group, and their processes are known
by their limit and environment only (`runs/supervisor/strays.py`).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from starburst.runs.supervisor import cgroups

#: The group at the top of the hierarchy.
NAME = "starburst"
#: Seconds for sudo.
SUDO_S = 10.0
#: Make the group, hand it to a user, and move a process there.
_SCRIPT = 'mkdir -p "$1" && chown "$2" "$1" "$1/cgroup.procs" && echo "$3" >"$1/cgroup.procs"'


def enter() -> bool:
    """Move this process to the machine's group; whether it is there."""
    group = _group()
    if group is None:
        return False
    argv = ["sh", "-c", _SCRIPT, "sh", str(group), str(os.getuid()), str(os.getpid())]
    try:
        sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
        quiet = subprocess.DEVNULL
        done = subprocess.run(
            [*sudo, *argv], stdin=quiet, stdout=quiet, stderr=quiet, timeout=SUDO_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def group_of(directory: Path) -> Path | None:
    """Where the group of a task is, if the machine's group was entered for it; it may not exist."""
    group = _group()
    return None if group is None else group / cgroups.name_of(directory)


def _group() -> Path | None:
    try:
        return cgroups.mount()[0] / NAME
    except (OSError, LookupError):
        return None
