"""`starburst events`: the decision log."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from starburst.app.jobs.job_keys import decision_keys
from starburst.app.times import local_clock, local_heading
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.completion import complete_jobs
from starburst.cli.jobs.names import one_job
from starburst.cli.output import Column, Format, Listing, OutputOption
from starburst.domain.job import is_over
from starburst.store.listings.row_types import DecisionRow


def events(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB|INSTANCE]", help="Only about this one; all if absent.", autocompletion=complete_jobs
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as they come; a job's until it ends.")
    ] = False,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="How many of the last to show.")] = 200,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the decision log: what was decided, and why."""
    with open_backend() as backend:
        about = None if subject is None else _subject(backend, subject)
        rows = backend.decisions(about, last=last)
        if follow:
            _follow(backend, about, rows, output)
        else:
            listing(backend.now()).print(rows, output)


def _subject(backend: Backend, text: str) -> str:
    """The id of a machine or job."""
    if any(machine.id == text for machine in backend.instances(include_ended=True)):
        return text
    return one_job(backend, text).id


def _follow(backend: Backend, about: str | None, rows: list[DecisionRow], output: Format) -> None:
    """Print the present rows, then each new one."""
    seq, over = 0, False
    while True:
        now = backend.now()
        shown, clock = listing(now), local_clock(now)
        for row in rows:
            text = f"{clock(row.at):>8}  {row.subject}  {row.reason}"
            print(shown.line(row, output, text), flush=True)
            seq = row.seq
        if over:
            return
        time.sleep(backend.poll_s)
        over = about is not None and any(is_over(row.phase) for row in backend.jobs(ids=[about]))
        rows = backend.decisions(about, after_seq=seq)


def listing(now: float) -> Listing[DecisionRow]:
    """The decision listing at `now`."""
    clock = local_clock(now)
    return Listing(
        kind="event",
        name=lambda row: str(row.seq),
        keys=decision_keys,
        columns=(
            Column("SEQ", lambda row: str(row.seq), wide=True, right=True),
            Column(local_heading("TIME", now), lambda row: clock(row.at), right=True),
            Column("SUBJECT", lambda row: row.subject),
            Column("EVENT", lambda row: row.event, wide=True),
            Column("DECISION", lambda row: row.kind),
            Column("REASON", lambda row: row.reason, narrow="fold"),
        ),
        empty="nothing was decided yet",
    )
