"""`starburst explain`: the state of a job and its reason, in one sentence."""

from __future__ import annotations

from typing import Annotated

import typer

from starburst.cli.backend.session import open_backend
from starburst.cli.output import Format, OutputOption, print_data, say


def explain(
    job: Annotated[str, typer.Argument(help="Id, name or unique beginning of one.")],
    output: OutputOption = Format.TABLE,
) -> None:
    """Say where a job stands and why, in one sentence."""
    with open_backend() as backend:
        row = backend.job(job)
        told = backend.explain(row)
        if output.for_people:
            say(f"{row.id} {told['explanation']}")
            backend.note_if_down()
        elif output is Format.NAME:
            say(f"job/{row.id}")
        else:
            print_data({"id": row.id, **told}, output)
