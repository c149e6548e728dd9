"""What a killed supervisor left behind, found and killed until nothing of it lives.

Three marks say that a process is a task's: its control group, where there is one; the hard limit that
`shim.mark_of` tells, which survives setsid and an emptied environment; and two variables of its environment,
for runs of versions that knew no better.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from starburst.runs import cgroups
from starburst.runs.shim import mark_of


def kill_strays(directory: Path, group: Path | None, variables: Iterable[str]) -> bool:
    """SIGKILL what is left of the task in this directory; whether there was anything.

    Raises:
        OSError: nobody can tell, as for want of open files.
    """
    found = group is not None and cgroups.kill(group)
    mark, marks = str(mark_of(str(directory))).encode(), {text.encode() for text in variables}
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(
            FileNotFoundError, ProcessLookupError, PermissionError
        ):  # gone meanwhile, or another user's
            found |= _kill_if_marked(Path("/proc", process), mark, marks)
    return found


def _kill_if_marked(process: Path, mark: bytes, variables: set[bytes]) -> bool:
    handle = os.pidfd_open(int(process.name))
    try:
        if not (_limit(process) == mark or variables & set((process / "environ").read_bytes().split(b"\0"))):
            return False
        if _is_dead(process):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    finally:
        os.close(handle)


def _limit(process: Path) -> bytes:
    """The hard limit on its real-time computing, µs."""
    for line in (process / "limits").read_bytes().splitlines():
        if line.startswith(b"Max realtime timeout"):
            return line.split()[-2]
    return b""


def _is_dead(process: Path) -> bool:
    """Whether it only waits to be reaped."""
    return (process / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
