"""`starburst export`: ended jobs as JSON lines, before the store rolls them up."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.errors import UserError
from starburst.cli.backend.session import open_store
from starburst.cli.output import say
from starburst.store.upkeep.exporting import ended_jobs


def export(
    file: Annotated[Path | None, typer.Argument(help="A new file; standard output if absent.")] = None,
) -> None:
    """Write ended jobs as lines of JSON, with their decisions. Jobs that were rolled up are left out."""
    with ExitStack() as stack:
        store = stack.enter_context(open_store())
        out = sys.stdout
        if file is not None:
            try:
                out = stack.enter_context(
                    open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w")
                )
            except OSError as error:
                raise UserError(f"{file}: cannot be made ({error.strerror}); name a new file") from None
        count = 0
        for job in ended_jobs(store, float("inf")):
            out.write(json.dumps(job, separators=(",", ":")) + "\n")
            count += 1
    if file is not None:
        say(f"{file}: {count:,} job{'' if count == 1 else 's'}")
