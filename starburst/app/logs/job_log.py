"""Reads or follows the log of a job, from files of the embedded sites or from pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.app.logs.sites import LogFile, LogPart, LogPosition, LogWriter, find_logs
from starburst.domain.clock import Pace
from starburst.domain.job import is_over
from starburst.store.listings import queries
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store

#: Wall seconds between two looks for new lines.
POLL_S = 0.2
#: Largest piece, in lines and characters; a single longer line is still one piece.
BLOCK, LETTERS = 1000, 1 << 17


async def read_log(
    store: Store,
    home: Home,
    job_id: str,
    part: LogPart,
    write: LogWriter,
    *,
    follow: bool = False,
    once: bool = False,
    note: Callable[[str], None] = lambda _: None,
    position: LogPosition | None = None,
) -> bool:
    """Write a job's log, with `follow` until the job ends; whether there was any log.

    `once` with `follow`: what there is now, for a follower who comes back for the rest; but for pods without
    a line that is not finished. `note` receives remarks about the log. Reading starts at `position`, which is
    kept up to date: during each call of `write` it is the position behind the text.

    Raises:
        UserError: the part does not exist, or the cluster is unreachable and no copy was kept.
    """
    position = position or LogPosition()
    if _on_kubernetes(store):
        from starburst.app.wiring.kube_client import need_kubernetes  # noqa: PLC0415 - slow to import, not always needed

        need_kubernetes()
        from starburst.app.logs.pod_logs import read_pods  # noqa: PLC0415 - its needs are an extra

        goes_on = follow and not once
        reading = read_pods(store, home, job_id, part, write, follow=goes_on, note=note, position=position)
    else:
        reading = _read_files(store, home, job_id, part, write, follow=follow, once=once, position=position)
    found = await reading
    if not found:
        refuse_unknown(store, queries.job(store, job_id), part)
    return found


def refuse_unknown(store: Store, row: JobRow, part: LogPart) -> None:
    """Refuse a part that does not exist.

    Raises:
        UserError: the job has no such attempt, or no such rank.
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
    """Whether the last `starburst up` used Kubernetes; parsing the whole config would import too much."""
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
    once: bool,
    position: LogPosition,
) -> bool:
    """Read log files of the embedded cluster and cloud; disk and store are accessed in threads."""
    known, pace = dict[Path, LogFile](), queries.pace(store)

    def look() -> tuple[bool, Iterator[str]]:
        row = queries.job(store, job_id)
        # Queried before reading, so that no line written before the end is missed.
        final = not follow or is_over(row.phase)
        if position.since is None:  # the present attempt, or any later one
            position.since = max((log.attempt for log in find_logs(home, row.id)), default=0)
        for log in find_logs(home, row.id, part.attempt, part.rank, since=position.since):
            if log.path not in known:
                known[log.path] = replace(log, offset=position.read.get(log.name, 0))
        return final, _new_lines(list(known.values()), part, pace, final=final)

    silent, found = True, False
    while True:
        final, lines = await asyncio.to_thread(look)
        while text := await asyncio.to_thread(_block, lines):
            position.read = {log.name: log.offset for log in known.values() if log.offset}
            await write(text)
            silent = False
        found |= bool(known)
        if final or once:
            return found
        _forget_past(known, position)
        if silent:
            await write("")
            silent = False
        await asyncio.sleep(POLL_S)


def _forget_past(known: dict[Path, LogFile], position: LogPosition) -> None:
    """Drop attempts that are followed by a later one; they were read to their ends."""
    last = max((log.attempt for log in known.values()), default=0)
    for log in [log for log in known.values() if log.attempt < last]:
        del known[log.path]
        position.since = last


def _new_lines(known: list[LogFile], part: LogPart, pace: Pace, *, final: bool) -> Iterator[str]:
    """Unread lines of a part, prefixed by the rank in a gang. Attempts before the last one have ended."""
    gang = len({log.rank for log in known}) > 1
    last = max((log.attempt for log in known), default=0)
    for log in known:
        times = log.times() if part.is_timed else None
        for line in log.new_lines(final=final or log.attempt < last):
            at = None if times is None else times.at(log.line_start)
            shown = part.show(f"[{log.rank}] {line}" if gang else line, at, pace)
            if shown:
                yield shown


def _block(lines: Iterator[str]) -> str:
    taken, letters = [], 0
    for line in islice(lines, BLOCK):
        taken.append(line)
        letters += len(line)
        if letters >= LETTERS:
            break
    return "".join(taken)
