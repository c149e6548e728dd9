"""What lies in a task's report directory: what it says of its own progress, and the addresses of its gang.

The report is the job's own, so nothing in it is taken on trust.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starburst.runs.supervisor.files import read_plain

#: The file's name in its directory, and the variable that tells a task its path.
FILE_NAME, VARIABLE = "report.json", "STARBURST_REPORT"
#: The file with the addresses, and the variable with its path.
HOSTS_NAME, HOSTS_VARIABLE = "hosts", "STARBURST_HOSTS_FILE"
#: A larger file is no report.
MAX_BYTES = 4096


@dataclass(frozen=True)
class ProgressReport:
    """Iterations done, of how many if the task says so, and how many a second of the wall's clock."""

    done: float
    total: float | None
    per_s: float

    @property
    def left_s(self) -> float:
        """Seconds to go at this rate; infinite if nobody knows."""
        return math.inf if self.total is None else (self.total - self.done) / self.per_s

    @property
    def to_go(self) -> tuple[float, float]:
        """By which a gang's task with most to go is the largest: what is left, then how slow it is."""
        return self.left_s, -self.per_s


def read_report(path: str | os.PathLike[str]) -> ProgressReport | None:
    """The report in a file; None if there is none, or what is there is no report."""
    try:
        text = read_plain(path, MAX_BYTES)
    except OSError:
        return None
    return None if text is None else parse_report(text)


def digest(report: bytes) -> str:
    """The id by which both ends know a report that was sent."""
    return hashlib.sha256(report).hexdigest()[:16]


def parse_report(text: bytes) -> ProgressReport | None:
    """The same from what the file holds."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    done, total, per_s = (_number(said.get(key)) for key in ("done", "total", "per_s"))
    if done is None or per_s is None or done < 0 or per_s <= 0:
        return None
    if said.get("total") is not None and (total is None or done > total):
        return None
    return ProgressReport(done, total, per_s)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def write_hosts(report_dir: str | os.PathLike[str], hosts: Sequence[str]) -> None:
    """Write the addresses of a gang's tasks, one a line by rank, as mpirun and its like read them.

    Before the task starts, which may run in an account of its own and reads them.
    """
    if not hosts:
        return
    path = os.path.join(report_dir, HOSTS_NAME)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(number, "w", encoding="utf-8") as file:
        os.fchmod(number, 0o644)
        file.writelines(f"{host}\n" for host in hosts)
