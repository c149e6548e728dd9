"""What a job wrote, as it comes: from files of the embedded sites, or from pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.app.logs.sites import LogFile, LogPosition, find_logs
from starburst.domain.job import is_over
from starburst.store import queries
from starburst.store.queries import JobRow
from starburst.store.store import Store

#: Wall seconds between looks for new lines.
POLL_S = 0.2
#: Lines handed on together, and letters, but for the last line.
BLOCK, LETTERS = 1000, 1 << 17

#: Takes the next piece of text; slow takers slow the reading down. To followers an empty piece says
#: that there was a first look, and where to go on from.
LogWriter = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LogPart:
    """Which of a job's logs are wanted: of the last run and of all tasks unless one is named."""

    attempt: int | None = None
    rank: int | None = None


async def read_log(
    store: Store,
    home: Home,
    job_id: str,
    part: LogPart,
    write: LogWriter,
    *,
    follow: bool = False,
    note: Callable[[str], None] = lambda _: None,
    position: LogPosition | None = None,
) -> bool:
    """Write what a job wrote, with `follow` until it is over; whether there was any log.

    `note` is told what its reader should know beside the text. It begins at the `position`, which is kept up:
    whenever `write` is called it is the one behind the text.

    Raises:
        UserError: there is no such part, or the cluster cannot be asked and nothing was kept.
    """
    position = position or LogPosition()
    if _on_kubernetes(store):
        from starburst.app.wiring.build import need_kubernetes  # noqa: PLC0415 - slow to import, not always needed

        need_kubernetes()
        from starburst.app.logs.pod_logs import read_pods  # noqa: PLC0415 - its needs are an extra

        reading = read_pods(store, home, job_id, part, write, follow=follow, note=note, position=position)
    else:
        reading = _read_files(store, home, job_id, part, write, follow=follow, position=position)
    found = await reading
    if not found:
        refuse_unknown(store, queries.job(store, job_id), part)
    return found


def refuse_unknown(store: Store, row: JobRow, part: LogPart) -> None:
    """Refuse what there is none of.

    Raises:
        UserError: the job has had no such run, or has no such task.
    """
    if part.attempt is not None and part.attempt > row.attempt:
        last = f"the last run of job/{row.id} is {row.attempt}"
        raise UserError(f"attempt: {part.attempt}: {last}; give one up to that")
    submission = store.submission(row.id)
    last_rank = 0 if submission is None else len(submission.job.tasks) - 1
    if part.rank is not None and part.rank > last_rank:
        last = f"the last task of job/{row.id} is {last_rank}"
        raise UserError(f"rank: {part.rank}: {last}; give one up to that")


def _on_kubernetes(store: Store) -> bool:
    """Whether the last `starburst up` had such a cluster; the whole config takes long to import."""
    config = store.fact("config") or {}
    return bool(config.get("cluster", {}).get("kind") == "kubernetes")


async def _read_files(
    store: Store,
    home: Home,
    job_id: str,
    part: LogPart,
    write: LogWriter,
    *,
    follow: bool,
    position: LogPosition,
) -> bool:
    """Of the embedded cluster and cloud. The disk and the store are asked in threads."""
    known = dict[Path, LogFile]()

    def look() -> tuple[bool, Iterator[str]]:
        row = queries.job(store, job_id)
        # Asked before reading, so that nothing written before the end is missed.
        final = not follow or is_over(row.phase)
        if position.since is None:  # the last run there is, or any that will be
            position.since = max((log.attempt for log in find_logs(home, row.id)), default=0)
        for log in find_logs(home, row.id, part.attempt, part.rank, since=position.since):
            if log.path not in known:
                known[log.path] = replace(log, offset=position.read.get(log.name, 0))
        return final, _new_lines(list(known.values()), final=final)

    silent, found = True, False
    while True:
        final, lines = await asyncio.to_thread(look)
        while text := await asyncio.to_thread(_block, lines):
            position.read = {log.name: log.offset for log in known.values() if log.offset}
            await write(text)
            silent = False
        found |= bool(known)
        if final:
            return found
        _forget_past(known, position)
        if silent:
            await write("")
            silent = False
        await asyncio.sleep(POLL_S)


def _forget_past(known: dict[Path, LogFile], position: LogPosition) -> None:
    """Runs after which there is another were read to their ends."""
    last = max((log.attempt for log in known.values()), default=0)
    for log in [log for log in known.values() if log.attempt < last]:
        del known[log.path]
        position.since = last


def _new_lines(known: list[LogFile], *, final: bool) -> Iterator[str]:
    """Lines not read yet; those of a gang begin with their rank. Runs before the last one are over."""
    gang = len({log.rank for log in known}) > 1
    last = max((log.attempt for log in known), default=0)
    for log in known:
        for line in log.new_lines(final=final or log.attempt < last):
            yield f"[{log.rank}] {line}" if gang else line


def _block(lines: Iterator[str]) -> str:
    taken, letters = [], 0
    for line in islice(lines, BLOCK):
        taken.append(line)
        letters += len(line)
        if letters >= LETTERS:
            break
    return "".join(taken)
