"""`starburst cancel`, `hold` and `release`: requests to the scheduler about stored jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from starburst.cli.backend.session import open_backend
from starburst.cli.output import say
from starburst.domain.job import Phase, is_over
from starburst.store.listings.queries import SUBMITTED

Jobs = Annotated[list[str], typer.Argument(help="Ids, names or unique beginnings of them.")]


def cancel(
    jobs: Jobs,
    now: Annotated[
        bool,
        typer.Option("--now", help="Give no grace; over HTTP for admins. Also for jobs that stop already."),
    ] = False,
) -> None:
    """Cancel jobs, wherever they are. A running one gets SIGTERM and its grace first."""
    with open_backend() as backend:
        for row in backend.cancel(jobs, now=now):
            said = f"is over already: {row.phase}" if is_over(row.phase) else "is being cancelled"
            say(f"job/{row.id} {said}")
        backend.note_if_down()


def hold(jobs: Jobs) -> None:
    """Keep jobs that wait out of the queue until they are released."""
    with open_backend() as backend:
        for row in backend.hold(jobs):
            say(f"job/{row.id} {_hold_answer(row.phase)}")
        backend.note_if_down()


def release(jobs: Jobs) -> None:
    """Let held jobs wait again; their waits begin anew."""
    with open_backend() as backend:
        for row in backend.release(jobs):
            held = row.phase in (SUBMITTED, Phase.HELD.value)
            say(f"job/{row.id} {'is being released' if held else f'is not held: it is {row.phase}'}")
        backend.note_if_down()


def _hold_answer(phase: str) -> str:
    if is_over(phase):
        return f"is over already: {phase}"
    if phase == Phase.HELD.value:
        return "is held already"
    waits = phase in (SUBMITTED, Phase.QUEUED.value)
    return "is being held" if waits else f"is not held: it waits no longer, it is {phase}"
