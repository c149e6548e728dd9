"""What a task says of its progress, on its machine; part of the agent (`guest.py`).

The directory is the task's own and a container is shown it, so whatever lies there is taken for anything.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat

#: The variable that tells a task where to write; and how large a report may be, as in `runs/report.py`.
VARIABLE, MAX_BYTES = "STARBURST_REPORT", 4096
NAME = "report.json"


def report_path(path: str) -> str:
    """The file that the task in this directory writes to."""
    return os.path.join(path, "report", NAME)


def make_room(path: str, *, everybody: bool) -> str:
    """Make the directory of a task's report; `everybody` if it runs as whoever its image says."""
    room = os.path.dirname(report_path(path))
    os.makedirs(room, mode=0o700, exist_ok=True)
    if everybody:
        os.chmod(room, 0o777)
    return room


def digest(report: bytes) -> str:
    """What a report is known by."""
    return hashlib.sha256(report).hexdigest()[:16]


def hear(path: str, known: str) -> str | None:
    """A task's report in base64; None if it is none, or the one that is known by its digest."""
    report = read(report_path(path))
    return None if report is None or digest(report) == known else base64.b64encode(report).decode()


def read(path: str) -> bytes | None:
    """What a report holds; None if it is no plain file, or larger than a report is."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # it may be anything, a pipe too
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        report = os.read(file, MAX_BYTES + 1)
        return report if len(report) <= MAX_BYTES else None
    except OSError:
        return None
    finally:
        os.close(file)
