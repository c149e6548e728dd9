"""`starburst submit`: submits all jobs of the files, or none if one is invalid."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import typer
from typer.core import TyperCommand

from starburst.app.errors import UserError
from starburst.app.jobs.job_keys import Keys
from starburst.app.logs.sites import LogPart
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.jobs.apply_rest import apply_rest
from starburst.cli.jobs.folding import array_members, array_title
from starburst.cli.jobs.submit_options import COMMAND, SubmitOptions, by_option
from starburst.cli.jobs.submit_sources import SubmitSources, read_submission
from starburst.cli.output import Format, print_data, say
from starburst.cli.runs.logs import show_log
from starburst.cli.streams import INTERRUPTED
from starburst.cli.tools.options import command
from starburst.domain.job import Phase, is_over
from starburst.store.listings.row_types import JobRow
from starburst.visible import visible
from translator.intake.texts import PASSED_OVER


class WithCommand(TyperCommand):
    """A command whose words behind -- are kept apart from its arguments, in the metadata of its context."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words behind the first -- away, and read the rest."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta[COMMAND] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("submit", cls=WithCommand)
@command(SubmitOptions)
def submit(options: SubmitOptions) -> None:
    """Submit jobs: all or, if one is bad, none."""
    if options.dry_run and (options.wait or options.follow):
        which = "--wait" if options.wait else "--follow"
        raise UserError(f"{which}: a dry run submits nothing to wait for; drop {which} or --dry-run")
    found = read_submission(options)
    with open_backend() as backend:
        if options.apply and not options.dry_run:
            # nothing is applied for jobs that are refused
            backend.submit(found.texts, dry_run=True, hold=options.hold)
            for name in apply_rest(found.texts):
                say(f"{name} applied", sys.stderr)
        rows = _submit(backend, found, options)
        if options.apply:
            rows = [_without_note(row) for row in rows]
        rows = [_with_notes(row, found.notes_of(row["name"])) for row in rows]
        if options.dry_run:
            _say(rows, options.output, lambda row: f"{row['name']} {row['explanation']}", name="name")
            return
        _say(rows, options.output, lambda row: f"{_kind(row)}/{row['id']} submitted", name="id")
        ids = [str(row["id"]) for row in rows if _kind(row) == "job"]
        with _told_if_left(ids):
            backend.note_if_down()
            if options.follow:
                _follow(backend, ids)
            if options.wait or options.follow:
                ended = sys.stdout if options.output.for_people and not options.follow else sys.stderr
                raise typer.Exit(_wait(backend, ids, ended))


def _submit(backend: Backend, found: SubmitSources, options: SubmitOptions) -> list[Keys]:
    """Submit the texts, or say what would happen; what is told of a command's job names its options.

    Raises:
        UserError: one of the texts is not taken.
    """
    try:
        rows = backend.submit(
            found.texts,
            dry_run=options.dry_run,
            hold=options.hold,
            allow_unsatisfiable=options.allow_unsatisfiable,
        )
    except UserError as error:
        if not found.of_command:
            raise
        raise UserError("\n".join(map(by_option, str(error).splitlines()))) from None
    return [_by_options(row) for row in rows] if found.of_command else rows


def _by_options(row: Keys) -> Keys:
    notes: Any = row["notes"]
    return {**row, "notes": [by_option(note) for note in notes]}


def _kind(row: Mapping[str, Any]) -> str:
    """Whether a row is of a job or of a CronJob, which has no end to wait for."""
    return str(row.get("kind", "job"))


def _follow(backend: Backend, job_ids: list[str]) -> None:
    """Show the log of the job until it ends; of several, and of CronJobs alone, none is shown."""
    if not job_ids:
        say("note: a CronJob has no log; those of its jobs are shown by starburst logs -f JOB", sys.stderr)
        return
    if len(job_ids) > 1:
        say(f"note: these are {len(job_ids)} jobs; their logs are shown by starburst logs -f JOB", sys.stderr)
        return
    show_log(backend, backend.job(job_ids[0]), LogPart(None, None), follow=True)


def _with_notes(row: Keys, notes: tuple[str, ...]) -> Keys:
    """A row with the notes on what was read as a manifest before its own."""
    own: Any = row["notes"]
    return {**row, "notes": [*notes, *own]}


def _without_note(row: Keys) -> Keys:
    """A row without the note on documents that are no jobs, which were applied."""
    notes: Any = row["notes"]
    return {**row, "notes": [note for note in notes if not note.startswith(PASSED_OVER)]}


def _say(
    rows: Sequence[Mapping[str, Any]], output: Format, text: Callable[[Mapping[str, Any]], str], *, name: str
) -> None:
    """Print the result per job, and for people the ignored parts of its manifest on stderr."""
    if output is Format.NAME:
        for row in rows:
            say(f"{_kind(row)}/{row[name]}")
    elif not output.for_people:
        print_data(rows, output)
    else:
        for members in array_members(rows):
            if len(members) > 1:
                title = array_title([str(row["id"]) for row in members])
                say(f"job/{title} submitted: an array of {len(members):,} jobs")
            else:
                say(text(members[0]))
            for note in dict.fromkeys(note for row in members for note in row["notes"]):
                say(f"  note: {note}", sys.stderr)
    sys.stdout.flush()


@contextmanager
def _told_if_left(job_ids: list[str]) -> Iterator[None]:
    """Tell a user who leaves by Ctrl-C that the jobs go on; CronJobs alone are not waited for."""
    try:
        yield
    except SystemExit as exit_:
        if job_ids and exit_.code == INTERRUPTED:
            named = "the job goes on" if len(job_ids) == 1 else f"the {len(job_ids):,} jobs go on"
            ends = f"starburst cancel {' '.join(job_ids[:3])}{' …' if len(job_ids) > 3 else ''}"
            say(f"note: {named}; to end {'it' if len(job_ids) == 1 else 'them'}: {ends}", sys.stderr)
        raise


def _wait(backend: Backend, job_ids: list[str], out: TextIO) -> int:
    """Print each end; 0 if all jobs succeeded."""
    waiting, failed, away = dict.fromkeys(job_ids), 0, False
    while waiting:
        rows = _looked_up(backend, list(waiting), told=away)
        away = rows is None
        for row in rows or ():
            if not is_over(row.phase):
                continue
            del waiting[row.id]
            failed += row.phase != Phase.SUCCEEDED.value
            left = f" ({len(waiting)} to go)" if waiting else ""
            print(visible(f"job/{row.id} {row.phase}: {row.message}{left}"), file=out, flush=True)
        if waiting:
            time.sleep(backend.poll_s)
    return 1 if failed else 0


def _looked_up(backend: Backend, job_ids: list[str], *, told: bool) -> list[JobRow] | None:
    """The jobs; None while they cannot be asked for, which is said unless it was `told` already."""
    try:
        return backend.jobs(ids=job_ids)
    except Exception as error:
        if not backend.is_away(error):
            raise
        if not told:
            say(f"note: {error}", sys.stderr)
            say("note: what was submitted goes on meanwhile, and is waited for", sys.stderr)
        return None
