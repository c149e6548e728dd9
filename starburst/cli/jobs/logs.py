"""`starburst logs`: the log of a job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from starburst.app.errors import UserError
from starburst.app.logs.sites import LogPart
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.output import say
from starburst.store.listings.queries import JobRow
from starburst.visible import LogFilter


def logs(
    job: Annotated[str, typer.Argument(help="Id, name or unique beginning of one.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Of this run; the last if absent.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Of this task of a gang; all if absent.")
    ] = None,
) -> None:
    """Print what a job wrote."""
    with open_backend() as backend:
        try:
            show_log(backend, backend.job(job), LogPart(attempt, rank), follow=follow)
        except UserError as error:
            if str(error).startswith(("attempt:", "rank:")):  # parameters of the API, options here
                raise UserError(f"--{error}") from None
            raise


def show_log(backend: Backend, row: JobRow, part: LogPart, *, follow: bool) -> None:
    """Print what a job wrote, with `follow` until it ends."""
    shown = LogFilter() if sys.stdout.isatty() else None

    def write(text: str) -> None:
        sys.stdout.write(text if shown is None else shown(text))
        sys.stdout.flush()

    found = backend.log(row, part, write, follow=follow, note=_note)
    if shown is not None:
        sys.stdout.write(shown.rest())
    if not found:
        row = backend.job(row.id)
        print(f"job/{row.id} has written nothing: {row.phase}", file=sys.stderr)


def _note(text: str) -> None:
    say(f"note: {text}", sys.stderr)
