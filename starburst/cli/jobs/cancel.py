"""`starburst cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from starburst.cli.backend.session import open_backend
from starburst.cli.output import say
from starburst.domain.job import is_over


def cancel(
    jobs: Annotated[list[str], typer.Argument(help="Ids, names or unique beginnings of them.")],
    now: Annotated[
        bool,
        typer.Option("--now", help="Give no grace; over HTTP for admins. Also for jobs that stop already."),
    ] = False,
) -> None:
    """Cancel jobs, wherever they are. A running one gets SIGTERM and its grace first."""
    with open_backend() as backend:
        rows = backend.cancel(jobs, now=now)
        for row in rows:
            said = f"is over already: {row.phase}" if is_over(row.phase) else "is being cancelled"
            say(f"job/{row.id} {said}")
        backend.note_if_down()
