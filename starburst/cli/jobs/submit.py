"""`starburst submit`: submits all jobs of the files, or none if one is invalid."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from starburst.app.errors import UserError
from starburst.app.jobs.serializers import Keys
from starburst.app.reading.sources import ManifestText
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.jobs.apply_rest import apply_rest
from starburst.cli.jobs.folding import array_members, array_title
from starburst.cli.output import Format, OutputOption, print_data, say
from starburst.domain.job import Phase, is_over
from starburst.visible import visible
from translator.intake.texts import PASSED_OVER


def submit(
    files: Annotated[list[str], typer.Argument(help="Kubernetes Job or Pod YAML; - is standard input.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen; submit nothing.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until all of them have ended; exit 1 if one failed.")
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Keep them out of the queue until starburst release.")
    ] = False,
    allow_unsatisfiable: Annotated[
        bool, typer.Option("--allow-unsatisfiable", help="Also what no node and no offer could ever hold.")
    ] = False,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply-rest",
            help="Apply what is no job in the files to the cluster of your kubeconfig, with your own rights.",
        ),
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit jobs: all or, if one is bad, none."""
    if dry_run and wait:
        raise UserError("--wait: a dry run submits nothing to wait for; drop --wait or --dry-run")
    with open_backend() as backend:
        sources = [_read(file) for file in files]
        if apply and not dry_run:
            backend.submit(sources, dry_run=True, hold=hold)  # nothing is applied for jobs that are refused
            for name in apply_rest(sources):
                say(f"{name} applied", sys.stderr)
        rows = backend.submit(sources, dry_run=dry_run, hold=hold, allow_unsatisfiable=allow_unsatisfiable)
        if apply:
            rows = [_without_note(row) for row in rows]
        if dry_run:
            _say(rows, output, lambda row: f"{row['name']} {row['explanation']}", name="name")
            return
        _say(rows, output, lambda row: f"job/{row['id']} submitted", name="id")
        backend.note_if_down()
        if wait:
            ended = sys.stdout if output.for_people else sys.stderr
            raise typer.Exit(_wait(backend, [str(row["id"]) for row in rows], ended))


def _read(file: str) -> ManifestText:
    source = "<stdin>" if file == "-" else file
    try:
        return ManifestText(
            source, (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
        )
    except OSError as error:
        problem = f"{source}: cannot be read ({error.strerror}); name an existing YAML file"
    except UnicodeDecodeError:
        problem = f"{source}: is not a text file; write YAML in UTF-8"
    return ManifestText(source, problem=problem)


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
            say(f"job/{row[name]}")
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


def _wait(backend: Backend, job_ids: list[str], out: TextIO) -> int:
    """Print each end; 0 if all jobs succeeded."""
    waiting, failed = dict.fromkeys(job_ids), 0
    while waiting:
        for row in backend.jobs(ids=list(waiting)):
            if not is_over(row.phase):
                continue
            del waiting[row.id]
            failed += row.phase != Phase.SUCCEEDED.value
            left = f" ({len(waiting)} to go)" if waiting else ""
            print(visible(f"job/{row.id} {row.phase}: {row.message}{left}"), file=out, flush=True)
        if waiting:
            time.sleep(backend.poll_s)
    return 1 if failed else 0
