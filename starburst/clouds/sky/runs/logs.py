"""Output of tasks as it comes home: each byte once, and no more of it than a disk should have to hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: Bytes of one task's output that are kept: its beginning, and a line that says so.
MAX_LOG = 1 << 30


@dataclass(frozen=True, slots=True)
class TaskLogs:
    """Files below a directory, of at most `most` bytes each and a line more."""

    root: Path
    most: int = MAX_LOG

    def seen(self, path: Path) -> int | None:
        """How much of a task's output is here; None if no more of it is wanted."""
        size = path.stat().st_size if path.exists() else 0
        return size if size < self.most else None

    def write(self, path: Path, offset: int, text: bytes) -> None:
        """A part of it that begins at this byte; nothing if it is here already."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            if file.tell() != offset:
                return
            file.write(text[: self.most - offset])
            if offset + len(text) >= self.most:
                file.write(f"\nstarburst: the log ends here, at {self.most} bytes\n".encode())

    def add(self, path: Path, line: str) -> None:
        """A line of ours, once nothing more of the task's comes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(f"starburst: {line}\n".encode())
