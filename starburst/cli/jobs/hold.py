"""`starburst hold`."""

from __future__ import annotations

from typing import Annotated

import typer

from starburst.cli.backend.session import open_backend
from starburst.cli.output import say
from starburst.domain.job import Phase, is_over
from starburst.store.queries import SUBMITTED


def hold(
    jobs: Annotated[list[str], typer.Argument(help="Ids, names or unique beginnings of them.")],
) -> None:
    """Keep jobs that wait out of the queue until they are released."""
    with open_backend() as backend:
        for row in backend.hold(jobs):
            say(f"job/{row.id} {_said(row.phase)}")
        backend.note_if_down()


def _said(phase: str) -> str:
    if is_over(phase):
        return f"is over already: {phase}"
    if phase == Phase.HELD.value:
        return "is held already"
    waits = phase in (SUBMITTED, Phase.QUEUED.value)
    return "is being held" if waits else f"is not held: it waits no longer, it is {phase}"
