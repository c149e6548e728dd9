"""`starburst events`: the decision log."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from starburst.cli.output import Column, Format, Listing, OutputOption
from starburst.cli.session import now_of, open_store
from starburst.cli.times import iso, local_clock
from starburst.domain.job import is_over
from starburst.store import queries
from starburst.store.queries import DecisionRow
from starburst.store.store import Store

FOLLOW_S = 0.3


def events(
    subject: Annotated[
        str | None, typer.Argument(metavar="[JOB|INSTANCE]", help="Only about this one; all if absent.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as they come; a job's until it ends.")
    ] = False,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="How many of the last to show.")] = 200,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the decision log: what was decided, and why."""
    with open_store() as store:
        about = None if subject is None else _subject(store, subject)
        rows = queries.decisions(store, about, last=last)
        shown = listing(now_of(store))
        if follow:
            _follow(store, about, rows, output)
        else:
            shown.print(rows, output)


def _subject(store: Store, text: str) -> str:
    """A machine by its id, or a job by anything that names it."""
    if any(machine.id == text for machine in queries.instance_records(store, include_ended=True)):
        return text
    return queries.job(store, text).id


def _follow(store: Store, about: str | None, rows: list[DecisionRow], output: Format) -> None:
    """Print what is there, then each row as it comes."""
    seq, over = 0, False
    while True:
        shown, clock = listing(now_of(store)), local_clock(now_of(store))
        for row in rows:
            text = f"{clock(row.at):>8}  {row.subject}  {row.reason}"
            print(shown.line(row, output, text), flush=True)
            seq = row.seq
        if over:
            return
        time.sleep(FOLLOW_S)
        over = about is not None and _is_over(store, about)
        rows = queries.decisions(store, about, after_seq=seq)


def _is_over(store: Store, about: str) -> bool:
    return any(is_over(row.phase) for row in queries.jobs(store, ids=[about]))


def listing(now: float) -> Listing[DecisionRow]:
    """Decisions as they are listed at `now`."""
    clock = local_clock(now)
    return Listing(
        kind="event",
        name=lambda row: str(row.seq),
        keys=lambda row: {
            "seq": row.seq,
            "at": iso(row.at),
            "subject": row.subject,
            "event": row.event,
            "decision": row.kind,
            "reason": row.reason,
            "numbers": row.numbers,
        },
        columns=(
            Column("SEQ", lambda row: str(row.seq), wide=True, right=True),
            Column("TIME", lambda row: clock(row.at), right=True),
            Column("SUBJECT", lambda row: row.subject),
            Column("EVENT", lambda row: row.event, wide=True),
            Column("DECISION", lambda row: row.kind),
            Column("REASON", lambda row: row.reason, narrow="fold"),
        ),
        empty="nothing was decided yet",
    )
