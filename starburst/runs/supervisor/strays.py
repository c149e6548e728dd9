"""What a killed supervisor left behind: found and killed until nothing of it lives.

Two marks say that a process is a task's: a hard limit that children inherit through setsid and an emptied
environment, though a process may lower it; and variables of its environment. Where tasks have control groups
(`cgroups.py`), these find what dropped both.
"""

from __future__ import annotations

import errno
import hashlib
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def mark_of(directory: str) -> int:
    """The hard limit RLIMIT_RTTIME, in µs, that marks the processes of a task.

    Children inherit it through fork, exec and setsid, no process without privileges can raise it, and at some
    70,000 years of real-time computing it limits nothing.
    """
    return (1 << 61) + int.from_bytes(hashlib.sha256(directory.encode()).digest()[:7], "big")


def kill_strays(directory: Path, variables: Iterable[str]) -> bool:
    """SIGKILL what has a mark of the task in this directory; whether there was anything.

    `variables` are NAME=VALUE texts, one of which a process of the task has in its environment.

    Raises:
        OSError: it cannot be told, as for want of open files.
    """
    found = False
    mark, marks = str(mark_of(str(directory))).encode(), {text.encode() for text in variables}
    for process in filter(str.isdigit, os.listdir("/proc")):
        # Gone meanwhile, or another user's.
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found |= _kill_if_marked(Path("/proc", process), mark, marks)
    return found


def _kill_if_marked(process: Path, mark: bytes, variables: set[bytes]) -> bool:
    pid = int(process.name)
    handle = _pidfd(pid)  # taken first, so that what is read is of the process that is killed
    try:
        if not (_limit(process) == mark or variables & set((process / "environ").read_bytes().split(b"\0"))):
            return False
        if _is_dead(process):
            return False
        if handle is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    finally:
        if handle is not None:
            os.close(handle)


def _pidfd(pid: int) -> int | None:
    """A descriptor of a process; None where the kernel (before 5.3) or Python was built without them."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None
        raise


def _limit(process: Path) -> bytes:
    """The hard limit on its real-time computing, µs."""
    for line in (process / "limits").read_bytes().splitlines():
        if line.startswith(b"Max realtime timeout"):
            return line.split()[-2]
    return b""


def _is_dead(process: Path) -> bool:
    """Whether it only waits to be reaped."""
    return (process / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
