"""What jobs wrote, on whichever site they ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starburst.app.home import Home
from starburst.runs.attempt_dir import AttemptDir
from starburst.runs.files import directory_name


@dataclass(slots=True)
class Log:
    """The log of one task of one run, and how far it was read."""

    path: Path
    attempt: int
    rank: int
    offset: int = 0

    def new_lines(self, *, final: bool) -> Iterator[str]:
        """Lines written since the last call; one that is not finished yet only if `final`."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for line in file:
                if not (final or line.endswith(b"\n")):
                    return
                self.offset += len(line)
                yield line.decode(errors="replace")


def find_logs(home: Home, job_id: str, attempt: int | None = None, rank: int | None = None) -> list[Log]:
    """Logs of a job's run (the last one if `attempt` is None) and task (all if `rank` is None), by rank."""
    found = [
        Log(task.path / "log", int(run.name), int(task.path.name))
        for root in (home.cluster, home.cloud / "runs")
        for run in (root / directory_name(job_id)).glob("[0-9]*")
        for task in AttemptDir(run).ranks()
        if (task.path / "log").exists()
    ]
    wanted = attempt if attempt is not None else max((log.attempt for log in found), default=0)
    chosen = (log for log in found if log.attempt == wanted and rank in (None, log.rank))
    return sorted(chosen, key=lambda log: log.rank)
