"""What is wrong with how single jobs of a day ended: with their logs, their memory, their saved steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from starburst.domain.job import Phase
from starburst.runs.attempt_dir import log_path
from starburst.store.listings.row_types import JobRow
from tests.sky_lab.day.jobs import FROM, SAVED, PlannedJob
from tests.sky_lab.deployment import Deployment
from tests.sky_lab.lab import spec_of
from tests.sky_lab.marks import Copy

#: What the end of a run says that ran out of memory: of a container perhaps only that it was killed, as the
#: laboratory's engine mostly hears of no such end (its machines lack systemd's control groups).
OUT_OF_MEMORY, KILLED = "OOMKilled", "exit code 137"
#: What a log says whose checkpoint did not come home.
NOT_HOME = "starburst: checkpoint lost"


def wrong_outcome(
    at: Deployment, planned: PlannedJob, row: JobRow, mine: Sequence[Copy], silenced: Collection[str]
) -> Iterator[str]:
    """What is wrong with a job that ended in a phase it may end in."""
    kind, root = planned.kind, at.home.cloud / "runs"
    if kind.log is not None:
        size = log_path(root, row.id, row.attempt or 0).stat().st_size
        if not kind.log[0] <= size <= kind.log[1]:
            yield f"its log has {size} bytes"
    if kind.greedy:
        yield from wrong_memory(row.phase, row.message, limited=kind.image is not None or limited(row, mine))
    if kind.saves:
        logs = [text(log_path(root, row.id, attempt)) for attempt in range(1, (row.attempt or 0) + 1)]
        yield from wrong_steps(logs, {copy.attempt for copy in mine if copy.vm in silenced})


def text(log: Path) -> str:
    """What a log says; nothing if there is none."""
    with suppress(FileNotFoundError):
        return log.read_text(errors="replace")
    return ""


def limited(row: JobRow, mine: Sequence[Copy]) -> bool:
    """Whether the machine on which a job without an image ended made a control group for it."""
    return any(
        spec_of(copy.vm, row.id, copy.attempt)["cgroup"] for copy in mine if copy.attempt == row.attempt
    )


def wrong_memory(phase: str, message: str, *, limited: bool) -> Iterator[str]:
    """What is wrong with the end of a job that took more memory than it asked for."""
    said = OUT_OF_MEMORY in message or KILLED in message
    if limited and (phase != Phase.FAILED.value or not said):
        yield f"its memory had a limit, and it is {phase}: {message}"
    if not limited and phase != Phase.SUCCEEDED.value:
        yield f"its memory had no limit, and it is {phase}: {message}"


def wrong_steps(logs: Sequence[str], silenced: Collection[int]) -> Iterator[str]:
    """Attempts that did not go on from what the ones before them had saved; their logs, from the first on.

    What an attempt saved that nobody heard to the end, or whose checkpoint was lost as its log says, may be
    there or not.
    """
    there = {0}
    for attempt, log in enumerate(logs, 1):
        began, saved = said(log, FROM), said(log, SAVED)
        if began is not None and began not in there:
            yield f"attempt {attempt} began at step {began}, not at {sorted(there)}"
        if saved is not None:
            sure = attempt not in silenced and NOT_HOME not in log
            there = {saved} if sure else {*there, saved}


def said(log: str, what: str) -> int | None:
    """The number that a log has after these words, at the beginning of a line."""
    for line in log.splitlines():
        if line.startswith(f"{what} "):
            return int(line.removeprefix(f"{what} "))
    return None
