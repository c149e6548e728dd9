"""`starburst status`: a list of jobs, or one job with its decisions."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer

from starburst.app.errors import UserError
from starburst.app.jobs.job_keys import job_keys, story_keys
from starburst.app.times import age, local_clock, local_heading
from starburst.cli.backend.backend import Backend, JobLister
from starburst.cli.backend.notes import note_if_forgotten
from starburst.cli.backend.session import open_backend, open_lister
from starburst.cli.completion import complete_jobs, complete_phases, complete_queues
from starburst.cli.jobs.folding import folded
from starburst.cli.jobs.names import job_ids
from starburst.cli.jobs.selection import PHASES, Selection, SiteName, SortKey, check_phases, since_time
from starburst.cli.output import Column, Format, Listing, OutputOption, dump, print_data, say
from starburst.domain.money import Money
from starburst.domain.phase import is_over
from starburst.store.listings.row_types import DecisionRow, JobRow

WATCH_S = 0.5
#: Rows of a table without `--limit`.
MOST_ROWS = 50
COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "cancelled": "dim",
    "running": "cyan",
    "held": "magenta",
    "queued": "yellow",
    "submitted": "yellow",
}


def status(
    job: Annotated[
        str | None,
        typer.Argument(
            help="One job: all about it, with its decisions; an array: its jobs.",
            autocompletion=complete_jobs,
        ),
    ] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on: redrawn, or a line a change.")] = False,
    phases: Annotated[
        list[str] | None,
        typer.Option(
            "--phase", help="Only jobs in this phase; may be repeated.", autocompletion=complete_phases
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only this user's jobs.")] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", help="Only jobs of this queue; may be repeated.", autocompletion=complete_queues
        ),
    ] = None,
    site: Annotated[SiteName | None, typer.Option("--site", help="Only jobs that run or ran there.")] = None,
    since: Annotated[
        str, typer.Option("--since", help="Only jobs submitted since: 2h, 7d, 2026-03-02, 2026-03-02T09:00.")
    ] = "",
    sort: Annotated[
        SortKey | None, typer.Option("--sort", help="Order; tables: newest first, for programs: oldest.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="At most so many rows, 0: all. Tables: 50, for programs: all."),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List jobs, or tell one job's story."""
    check_phases(phases or ())

    def selection(now: float) -> Selection:
        oldest = since_time(since, now) if since else None
        return Selection(phases or (), user, queues or (), site, oldest, sort)

    if job is not None:
        with open_backend() as backend:
            chosen = selection(backend.now())
            _note(backend, output)
            _one(backend, job, chosen, output, limit, watch=watch)
        return
    with open_lister() as lister:
        chosen = selection(lister.now())
        _note(lister, output)
        if watch:
            _watch(lister, lambda: chosen.rows(lister), output)
        else:
            _list(lister, chosen, output, limit)


def _note(backend: JobLister, output: Format) -> None:
    if output.for_people:
        backend.note_if_down()
        note_if_forgotten()


def _one(
    backend: Backend, name: str, chosen: Selection, output: Format, limit: int | None, *, watch: bool
) -> None:
    """Print all about one job, or the chosen jobs of an array.

    Raises:
        UserError: it is one job, and options choose among jobs.
    """
    rows = backend.named(job_ids(backend, [name]))
    if len(rows) == 1:
        if chosen.is_choice:
            options = "--phase, --user, --queue, --site and --since"
            raise UserError(f"{options} choose among jobs, and job/{rows[0].id} is one; leave them out")
        _tell(backend, rows[0], output, watch=watch)
    elif watch:
        _watch(backend, lambda: chosen.among(backend.jobs(ids=[row.id for row in rows])), output)
    else:
        listing(backend.now()).print(chosen.among(rows)[: limit or None], output)


def _list(backend: JobLister, chosen: Selection, output: Format, limit: int | None) -> None:
    """Print the chosen jobs: for people the newest, with a row per array, and how many more there are."""
    if not output.for_people:
        rows = chosen.rows(backend)
        listing(backend.now()).print(rows[: limit or None], output)
        return
    rows = folded(replace(chosen, sort=chosen.sort or SortKey.NEWEST).rows(backend))
    most = MOST_ROWS if limit is None else limit or len(rows)
    listing(backend.now()).print(rows[:most], output)
    if len(rows) > most:
        print(f"{len(rows) - most} more: --limit 0 lists them all, --phase or --since fewer", file=sys.stderr)


def listing(now: float) -> Listing[JobRow]:
    """The job listing at `now`."""
    clock = local_clock(now)

    def gpus(row: JobRow) -> str:
        """The GPU part of the need, "4 V100 GPUs", without the unit that the heading names."""
        first = row.need.split(", ")[0]
        return first.removesuffix("s").removesuffix(" GPU") if "GPU" in first else ""

    def span(row: JobRow) -> str:
        began = row.submitted_at if row.started_at is None else row.started_at
        return age((now if row.ended_at is None else row.ended_at) - began)

    def leaves(row: JobRow) -> str:
        return "" if row.deadline is None or row.phase != "queued" else clock(row.deadline)

    def bill(row: JobRow) -> str:
        return str(Money(row.cloud_micro_usd)) if row.cloud_micro_usd else ""

    return Listing(
        kind="job",
        name=lambda row: row.id,
        keys=job_keys,
        columns=(
            Column("JOB", lambda row: row.id),
            Column(
                "PHASE",
                lambda row: row.phase,
                narrow="fold",
                style=lambda row: COLOURS.get(row.phase, ""),
            ),
            Column("GPUS", gpus, narrow="drop"),
            Column("ON", lambda row: row.runs_on, narrow="cut"),
            Column("FOR", span, right=True, narrow="drop"),
            Column(local_heading("LEAVES", now), leaves, right=True),
            Column("BILL", bill, right=True),
            Column("NEEDS", lambda row: row.need, wide=True, narrow="fold"),
            Column("USER", lambda row: row.user, wide=True),
            Column("QUEUE", lambda row: row.queue, wide=True),
            Column("RUN", lambda row: str(row.attempt or ""), wide=True, right=True),
            Column(local_heading("SUBMITTED", now), lambda row: clock(row.submitted_at), wide=True),
            Column("EXIT", lambda row: "" if row.exit_code is None else str(row.exit_code), wide=True),
            Column("MESSAGE", lambda row: row.message, wide=True, narrow="fold"),
        ),
        empty="no jobs",
    )


def _watch(backend: JobLister, look: Callable[[], list[JobRow]], output: Format) -> None:
    """Redraw the listing on a terminal, or print a line per change; ends with Ctrl-C."""
    if output.for_people and sys.stdout.isatty():
        _redraw(backend, look, output)
    seen: dict[str, JobRow] = {}
    shown = listing(0.0)
    while True:
        for row in look():
            if seen.get(row.id) != row:
                seen[row.id] = row
                print(shown.line(row, output, f"{row.id} {row.phase} {row.runs_on}".rstrip()), flush=True)
        time.sleep(max(WATCH_S, backend.poll_s))


def _redraw(backend: JobLister, look: Callable[[], list[JobRow]], output: Format) -> None:
    from rich.console import Group  # noqa: PLC0415 - slow to import, and rarely needed
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            rows = look()
            counts = Counter(row.phase for row in rows)
            summary = ", ".join(f"{counts[phase]} {phase}" for phase in PHASES if counts[phase]) or "no jobs"
            # Live jobs take precedence over ended ones; of both the newest are shown.
            rows.sort(key=lambda row: not is_over(row.phase))
            newest = rows[-max(1, live.console.height - 3) :]
            now = backend.now()
            clock = local_clock(now)(now)
            live.update(
                Group(Text(f"{clock}  {summary}", "dim"), listing(now).table(newest, output)), refresh=True
            )
            time.sleep(max(WATCH_S, backend.poll_s))


def _tell(backend: Backend, row: JobRow, output: Format, *, watch: bool) -> None:
    """Print a job with its decisions; with `watch` also new decisions until the job ends."""
    sentence, story = str(backend.explain(row)["explanation"]), backend.decisions(row.id)
    if output is Format.NAME:
        say(f"job/{row.id}")
    elif not output.for_people:
        data = story_keys(row, sentence, story)
        print(dump(data, output)) if watch else print_data(data, output)
    else:
        say(f"{row.id} {sentence}")
        say(f"needs {row.need}; submitted by {row.user or 'nobody'} to queue {row.queue}")
        _print_story(backend, story)
    while watch and not is_over(row.phase):
        sys.stdout.flush()
        time.sleep(max(WATCH_S, backend.poll_s))
        before, row = row, backend.job(row.id)
        if output.for_people:
            news = backend.decisions(row.id, after_seq=story[-1].seq if story else 0)
            story += news
            _print_story(backend, news)
        elif row != before and output is not Format.NAME:
            print(dump(job_keys(row), output))


def _print_story(backend: Backend, story: list[DecisionRow]) -> None:
    clock = local_clock(backend.now())
    for decision in story:
        say(f"  {clock(decision.at):>8}  {decision.reason}")
