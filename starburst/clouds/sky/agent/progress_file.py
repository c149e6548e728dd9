"""A task's progress report on its machine: where it is written, and how the agent gives it back.

The directory is the task's own and a container is shown it, so whatever lies there is read as hostile.
"""

from __future__ import annotations

import base64
import os

from starburst.runs.supervisor.files import read_plain
from starburst.runs.supervisor.progress_report import FILE_NAME, MAX_BYTES, digest


def report_path(path: str) -> str:
    """The file that the task in this directory writes to."""
    return os.path.join(path, "report", FILE_NAME)


def make_report_dir(path: str, *, everybody: bool) -> str:
    """Make the directory of a task's report; with `everybody`, a container may write there as any user."""
    directory = os.path.dirname(report_path(path))
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if everybody:
        os.chmod(directory, 0o777)
    return directory


def hear(path: str, known: str) -> str | None:
    """A task's report in base64; None if there is none, or it is the one of digest `known`."""
    try:
        report = read_plain(report_path(path), MAX_BYTES)
    except OSError:
        return None
    return None if report is None or digest(report) == known else base64.b64encode(report).decode()
