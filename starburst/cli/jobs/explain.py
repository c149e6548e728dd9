"""`starburst explain`: the state of a job and its reason, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from starburst.app.jobs.cron_jobs import KIND
from starburst.app.jobs.job_keys import Keys
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.completion import complete_jobs
from starburst.cli.jobs.cronjobs import without_cron_jobs
from starburst.cli.jobs.folding import array_title, phase_counts
from starburst.cli.jobs.names import job_ids
from starburst.cli.output import Format, OutputOption, print_data, say
from starburst.store.listings.row_types import JobRow


def explain(
    job: Annotated[
        str,
        typer.Argument(
            help="Id, name or unique beginning of one; or an array.", autocompletion=complete_jobs
        ),
    ],
    output: OutputOption = Format.TABLE,
) -> None:
    """Say where a job stands and why, in one sentence."""
    with open_backend() as backend:
        _, cron_jobs = without_cron_jobs([job])
        if cron_jobs:
            _explain_cron_job(backend.cron_job(cron_jobs[0]), output)
            return
        rows = backend.named(job_ids(backend, [job]))
        if len(rows) > 1:
            _explain_array(backend, rows, output)
            return
        row = rows[0]
        told = backend.explain(row)
        if output.for_people:
            say(f"{row.id} {told['explanation']}")
            backend.note_if_down()
        elif output is Format.NAME:
            say(f"job/{row.id}")
        else:
            print_data({"id": row.id, **told}, output)


def _explain_cron_job(row: Keys, output: Format) -> None:
    if output.for_people:
        say(f"{row['id']} {row['explanation']}")
    elif output is Format.NAME:
        say(f"{KIND}/{row['id']}")
    else:
        print_data(row, output)


def _explain_array(backend: Backend, rows: Sequence[JobRow], output: Format) -> None:
    """Say how many jobs of an array are in each phase, and why the first of each phase is in it."""
    if not output.for_people:
        listed = [{"id": row.id, **backend.explain(row)} for row in rows]
        if output is Format.NAME:
            for row in rows:
                say(f"job/{row.id}")
        else:
            print_data(listed, output)
        return
    say(f"{array_title([row.id for row in rows])}: {phase_counts(rows)}")
    first = dict[str, JobRow]()
    for row in rows:
        first.setdefault(row.phase, row)
    for row in first.values():
        say(f"{row.id} {backend.explain(row)['explanation']}")
    backend.note_if_down()
