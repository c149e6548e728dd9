"""The supervisor's own processes: what a child inherits, and how all descendants are ended.

The supervisor is a child subreaper (prctl(2)), so a process whose parent dies becomes its child, whatever
session it moved to. Killing children until none is left therefore ends the whole tree.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress

#: The descriptor by which the supervisor inherits the lock of its rank directory.
LOCK_FD = 3

#: Seconds for sudo.
SUDO_S = 10.0

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Have the kernel make orphaned descendants children of this process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; ends at once if that has happened."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)


def limit(limits: Mapping[str, int]) -> None:
    """Set limits of this process, by names without RLIMIT_; one that may not be raised stays as high."""
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        try:
            resource.setrlimit(kind, (most, most))
        except (ValueError, OSError):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))


def keep_only(*kept: int) -> None:
    """Close every file descriptor but the standard streams and these."""
    low = 2
    for high in (*sorted(kept), 1 << 16):
        os.closerange(low + 1, high)
        low = high


def end_children() -> None:
    """SIGKILL and reap children until there are none, orphans that this process inherits included."""
    while True:
        for pid in children():
            _kill(pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill(pid: int) -> None:
    """SIGKILL a child; by sudo if it is root's, as clients of a container engine may be."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        argv = ["sudo", "-n", "kill", "-9", str(pid)]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(argv, stderr=subprocess.DEVNULL, timeout=SUDO_S, check=False)


def children() -> list[int]:
    """Process ids of this process's children; they stay theirs until they are reaped."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid():
            found.append(int(name))
    return found
