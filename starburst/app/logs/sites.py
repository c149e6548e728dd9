"""What jobs wrote, on whichever site they ran."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.runs.attempt_dir import AttemptDir
from starburst.runs.files import directory_name

#: Bytes read at a time, and the longest line that is handed on in one piece.
BLOCK = 1 << 16
#: What ends a line: progress bars end theirs with \r alone.
_END = re.compile(rb"\r\n|\n|\r(?!\Z)")

#: A position as text: the first run that is read, and bytes by name.
_POSITION = re.compile(r"[0-9]{1,9}(&[-./A-Za-z0-9]{1,300}=[0-9]{1,18})*")


@dataclass(slots=True)
class LogPosition:
    """How far a job's log was read, so that somebody else can go on from there."""

    #: Runs before this one are not read; None until there was a first look.
    since: int | None = None
    #: Bytes read of each task, by its run and rank ("2.0"), and of each pod, by its name.
    read: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """The position that was written so; "" is the beginning.

        Raises:
            UserError: none was.
        """
        if not text:
            return cls()
        if not _POSITION.fullmatch(text):
            raise UserError(f"Last-Event-ID: {text[:50]!r}: is none of a log; leave it out")
        since, *pairs = text.split("&")
        return cls(
            int(since), {name: int(count) for name, _, count in (pair.partition("=") for pair in pairs)}
        )

    def __str__(self) -> str:
        if self.since is None:
            return ""
        return "&".join([str(self.since), *(f"{name}={count}" for name, count in self.read.items())])


@dataclass(slots=True)
class LogFile:
    """The log of one task of one run, and how far it was read."""

    path: Path
    attempt: int
    rank: int
    offset: int = 0

    @property
    def name(self) -> str:
        """As a position has it."""
        return f"{self.attempt}.{self.rank}"

    def new_lines(self, *, final: bool) -> Iterator[str]:
        """Lines written since the last call; one that is not finished yet only if `final`.

        A line longer than a block comes in pieces: whoever writes without end costs no memory.
        """
        with self.path.open("rb") as file:
            file.seek(self.offset)
            rest = b""
            while block := file.read(BLOCK):
                rest += block
                start = 0
                for end in _END.finditer(rest):
                    yield self._read(rest[start : end.end()])
                    start = end.end()
                rest = rest[start:]
                if len(rest) >= BLOCK:
                    piece = rest[: _whole(rest)]
                    yield self._read(piece)
                    rest = rest[len(piece) :]
        if final and rest:
            yield self._read(rest)

    def _read(self, text: bytes) -> str:
        self.offset += len(text)
        return text.decode(errors="replace")


def _whole(text: bytes) -> int:
    """How much of a text can be cut off without cutting a sign of UTF-8, or a \\r from its \\n."""
    for back in range(1, 4):
        if text[-back] >= 0xC0:
            return len(text) - back
        if text[-back] < 0x80:
            break
    return len(text) - text.endswith(b"\r")


def find_logs(
    home: Home, job_id: str, attempt: int | None = None, rank: int | None = None, *, since: int | None = None
) -> list[LogFile]:
    """Logs of a job's run and task (all if `rank` is None), by run and rank.

    If `attempt` is None it is the last run, or all from `since` on.
    """
    found = [
        LogFile(task.path / "log", int(run.name), int(task.path.name))
        for root in (home.cluster, home.cloud / "runs")
        for run in (root / directory_name(job_id)).glob("[0-9]*")
        for task in AttemptDir(run).ranks()
        if (task.path / "log").exists()
    ]
    first = since if since is not None else max((log.attempt for log in found), default=0)
    chosen = (log for log in found if (log.attempt >= first if attempt is None else log.attempt == attempt))
    ranked = (log for log in chosen if rank in (None, log.rank))
    return sorted(ranked, key=lambda log: (log.attempt, log.rank))
