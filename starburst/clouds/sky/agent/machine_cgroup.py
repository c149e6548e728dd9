"""A control group (version 2) per task, below one of the machine.

A machine's user may seldom make groups where its sessions are, so they are made at the top of the hierarchy,
by root, and handed to the user, who may then end what is in them: this is delegation as cgroups(7) has it. A
task that is kept apart is limited to its CPUs and memory by its group, and moves there itself. Any other
task's processes are moved there with the one that runs it. Where this is not possible (no root, no version 2,
a kernel before 5.14) tasks have no group, and their processes are known by their limit and environment only
(`runs/supervisor/strays.py`).
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from starburst.runs.supervisor import cgroups

#: The group at the top of the hierarchy.
NAME = "starburst"
#: Seconds for sudo.
SUDO_S = 10.0
#: The period of a limit on CPU time, µs.
PERIOD_US = 100_000
#: Make the groups, hand them to a user, and move a process into the second.
_SCRIPT = (
    'mkdir -p "$1" && chown "$2" "${1%/*}" "$1" "$1/cgroup.procs" && '
    '{ chown "$2" "$1/cgroup.kill" || true; } && echo "$3" >"$1/cgroup.procs"'
)


def enter(directory: Path) -> bool:
    """Move this process into the group of the task in this directory; whether it is there."""
    group = group_of(directory)
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


def make(directory: Path, owner: int, cpus: float, memory_mib: int) -> str | None:
    """As root, make the group of a task, with limits (0: none) where the machine's controllers can be had.

    Returns None where no group can be made.
    """
    group = group_of(directory)
    if group is None:
        return None
    limits = {
        "cpu.max": f"{round(cpus * PERIOD_US)} {PERIOD_US}" if cpus else "max",
        "memory.max": str(memory_mib << 20) if memory_mib else "max",
        "memory.oom.group": "1",
    }
    try:
        group.mkdir(parents=True, exist_ok=True)
        for path in (group.parent, group, group / "cgroup.kill"):
            os.chown(path, owner, -1)
    except OSError:
        return None
    for controller in ("cpu", "memory"):
        for above in (group.parent.parent, group.parent):
            with suppress(OSError):  # it is of version 1 here, or another's
                (above / "cgroup.subtree_control").write_text(f"+{controller}")
    for name, limit in limits.items():
        if (group / name).exists():
            with suppress(OSError):
                (group / name).write_text(limit)
    return str(group)


def group_of(directory: Path) -> Path | None:
    """Where the group of a task is, whether it was made or not; None without version 2."""
    try:
        return cgroups.mount()[0] / NAME / cgroups.name_of(directory)
    except (OSError, LookupError):
        return None
