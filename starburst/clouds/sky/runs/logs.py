"""Output of tasks on this side: each byte once, and at most as much as a disk should have to hold.

A machine bounds its logs, too (`runs/supervisor/log_pump.py`), but is not trusted to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from starburst.runs.supervisor.line_times import NAME, note_time
from starburst.runs.supervisor.log_pump import MAX_LOG, TAIL

#: Bytes by which a log of a machine is longer than its bound: the end of what exceeds it, and words about it.
OVER = TAIL + 1024


@dataclass(frozen=True, slots=True)
class TaskLogs:
    """Log files below `root`, of at most `most` bytes and a line each that says that it was cut."""

    root: Path
    most: int = MAX_LOG + OVER

    def seen(self, path: Path) -> int | None:
        """The bytes of a task's output that are here; None if no more is wanted."""
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            size = 0
        return size if size < self.most else None

    def write(self, path: Path, offset: int, text: bytes) -> None:
        """Append a part that begins at byte `offset`; ignores a part that is here already.

        The time of its lines is that of their arrival. An empty part makes an empty log at most.
        """
        if not text and path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            if file.tell() != offset:
                return
            note_time(str(path.with_name(NAME)), offset, time.time())
            file.write(text[: self.most - offset])
            if offset + len(text) >= self.most:
                file.write(f"\nstarburst: the log ends here, at {self.most} bytes\n".encode())

    def add(self, path: Path, line: str) -> None:
        """Append a line of Starburst's; no more output of the task may follow."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(f"starburst: {line}\n".encode())
