"""What a task says of its own progress. The file is the job's own, so nothing in it is taken on trust."""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Its name in the task's directory, and the variable by which the task knows it.
REPORT, VARIABLE = "report.json", "STARBURST_REPORT"
#: A larger file is no report.
MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
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


def read_report(path: Path) -> ProgressReport | None:
    """What the file says; None if there is none, or what is there is no report."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # it may be anything, a pipe too
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return parse_report(os.read(file, MAX_BYTES))
    except OSError:
        return None
    finally:
        os.close(file)


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
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
