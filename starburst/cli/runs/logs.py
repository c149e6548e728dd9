"""`starburst logs`: the log of a job."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable
from typing import Annotated

import typer

from starburst.app.errors import UserError
from starburst.app.logs.sites import LogPart
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.completion import complete_jobs
from starburst.cli.jobs.names import one_job
from starburst.cli.jobs.selection import since_time
from starburst.cli.output import say
from starburst.store.listings.row_types import JobRow
from starburst.visible import LogFilter

#: A line, the last of which may have no end; other separators of Unicode, and form feeds, are text of a log.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


def logs(
    job: Annotated[
        str,
        typer.Argument(
            help="Id, name or unique beginning of one; ARRAY[INDEX] is a job of an array.",
            autocompletion=complete_jobs,
        ),
    ],
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", min=0, help="Only so many of its last lines; with -f, and what follows."),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", help="Only lines from then on: 10m, 2h, 2026-03-02T09:00.")
    ] = "",
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help='Begin each line with its time in UTC, "-" if unknown.')
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Of this run; the last if absent.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Of this task of a gang; all if absent.")
    ] = None,
) -> None:
    """Print what a job wrote."""
    with open_backend() as backend:
        row = one_job(backend, job)
        begin = since_time(since, backend.now()) if since else None
        part = LogPart(attempt, rank, begin, timestamps)
        try:
            show_log(backend, row, part, follow=follow, tail=tail)
        except UserError as error:
            if str(error).startswith(("attempt:", "rank:")):  # parameters of the API, options here
                raise UserError(f"--{error}") from None
            raise


def show_log(backend: Backend, row: JobRow, part: LogPart, *, follow: bool, tail: int | None = None) -> None:
    """Print what a job wrote, or its last `tail` lines; with `follow` until it ends."""
    shown = LogFilter() if sys.stdout.isatty() else None

    def write(text: str) -> None:
        sys.stdout.write(text if shown is None else shown(text))
        sys.stdout.flush()

    if tail is None:
        found = backend.log(row, part, write, follow=follow, note=_note)
    else:
        found = _log_end(backend, row, part, write, follow=follow, lines=tail)
    if shown is not None:
        sys.stdout.write(shown.rest())
    if not found:
        row = backend.job(row.id)
        print(f"job/{row.id} has written nothing: {row.phase}", file=sys.stderr)


def _log_end(
    backend: Backend, row: JobRow, part: LogPart, write: Callable[[str], None], *, follow: bool, lines: int
) -> bool:
    """Write the last `lines` lines; with `follow` also what comes after them. Whether there was any log."""
    last, count = deque[str](maxlen=lines), 0

    def keep(text: str) -> None:
        nonlocal count
        new = _LINE.findall(text)
        last.extend(new)
        count += len(new)

    found = backend.log(row, part, keep, follow=False, note=_note)
    if not follow:
        write("".join(last))
        return found
    left = max(0, count - lines)  # lines of the log that are passed over when it is read again

    def pass_over(text: str) -> None:
        nonlocal left
        new = _LINE.findall(text)
        write("".join(new[left:]))
        left = max(0, left - len(new))

    return backend.log(row, part, pass_over, follow=True, note=lambda _: None)


def _note(text: str) -> None:
    say(f"note: {text}", sys.stderr)
