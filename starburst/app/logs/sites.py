"""Log files of the embedded sites; parts of logs, and positions in them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.app.times import iso
from starburst.domain.clock import Pace
from starburst.runs.attempt_dir import AttemptDir
from starburst.runs.files import directory_name
from starburst.runs.supervisor import line_times

#: Bytes per read, and the longest line that is passed on in one piece.
BLOCK = 1 << 16
#: Line ends; progress bars end their lines with \r.
_END = re.compile(rb"\r\n|\n|\r(?!\Z)")

#: A position as text: the first attempt, then bytes by name.
_POSITION = re.compile(r"[0-9]{1,9}(&[-./A-Za-z0-9]{1,300}=[0-9]{1,18})*")


#: Receives the next piece of text; a slow receiver slows the reading down. An empty piece tells followers
#: that the first look is done, and the position.
LogWriter = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LogPart:
    """The part of a job's logs: an attempt (default: the last) and a rank (default: all)."""

    attempt: int | None = None
    rank: int | None = None
    #: Only lines from this time on, scheduler seconds; lines of unknown time are part of it.
    since: float | None = None
    #: Each line begins with its time, RFC 3339, or with "-" if that is unknown.
    timestamps: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether the times of lines are needed."""
        return self.timestamps or self.since is not None

    def show(self, line: str, at: float | None, pace: Pace) -> str:
        """A line as it is written, "" if it is not part of this. `at`: its wall time, epoch seconds."""
        when = None if at is None else pace.scheduler_time(at)
        if when is not None and self.since is not None and when < self.since:
            return ""
        return f"{iso(when) or '-'} {line}" if self.timestamps else line


@dataclass(slots=True)
class LogPosition:
    """How far a job's log was read, so that another request can resume there."""

    #: Attempts before this one are skipped; None before the first look.
    since: int | None = None
    #: Bytes read, by attempt and rank ("2.0") or by pod.
    read: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Parse a position; "" is the beginning.

        Raises:
            UserError: the text is not a position.
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
    """The log file of one task of one attempt, and the offset read so far."""

    path: Path
    attempt: int
    rank: int
    offset: int = 0
    #: Where the line begins that was read last.
    line_start: int = 0

    @property
    def name(self) -> str:
        """Its key in a position."""
        return f"{self.attempt}.{self.rank}"

    def new_lines(self, *, final: bool) -> Iterator[str]:
        """Lines written since the last call; an unfinished line only if `final`.

        A line longer than BLOCK comes in pieces, so that memory stays bounded.
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

    def times(self) -> line_times.LineTimes:
        """When its lines were written, as far as that is known now."""
        return line_times.read_times(str(self.path.with_name(line_times.NAME)))

    def _read(self, text: bytes) -> str:
        self.line_start = self.offset
        self.offset += len(text)
        return text.decode(errors="replace")


def _whole(text: bytes) -> int:
    r"""The length of a prefix that splits neither a UTF-8 character nor \r
    .
    """
    for back in range(1, 4):
        if text[-back] >= 0xC0:
            return len(text) - back
        if text[-back] < 0x80:
            break
    return len(text) - text.endswith(b"\r")


def find_logs(
    home: Home, job_id: str, attempt: int | None = None, rank: int | None = None, *, since: int | None = None
) -> list[LogFile]:
    """Log files of a job by attempt and rank; `rank` None is all.

    `attempt` None is the last attempt, or all from `since` on.
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
