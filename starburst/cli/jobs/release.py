"""`starburst release`."""

from __future__ import annotations

from typing import Annotated

import typer

from starburst.cli.backend.session import open_backend
from starburst.cli.output import say
from starburst.domain.job import Phase
from starburst.store.queries import SUBMITTED


def release(
    jobs: Annotated[list[str], typer.Argument(help="Ids, names or unique beginnings of them.")],
) -> None:
    """Let held jobs wait again; their waits begin anew."""
    with open_backend() as backend:
        for row in backend.release(jobs):
            held = row.phase in (SUBMITTED, Phase.HELD.value)
            say(f"job/{row.id} {'is being released' if held else f'is not held: it is {row.phase}'}")
        backend.note_if_down()
