"""`starburst export`: ended jobs as JSON lines, before the store rolls them up."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, TextIO

import typer

from starburst.app.errors import UserError
from starburst.cli.backend.session import open_store
from starburst.cli.output import say
from starburst.store.store import Store
from starburst.store.upkeep.exporting import ended_jobs


def export(
    file: Annotated[Path | None, typer.Argument(help="A new file; standard output if absent.")] = None,
) -> None:
    """Write ended jobs as lines of JSON, with their decisions. Jobs that were rolled up are left out."""
    with open_store() as store:
        if file is None:
            _write(store, sys.stdout)
            return
        count = _kept(store, file)
    say(f"{file}: {count:,} job{'' if count == 1 else 's'}")


def _kept(store: Store, file: Path) -> int:
    """Write the jobs to a new file, all of them or none; their number."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UserError(f"{file}: cannot be made ({error.strerror}); name a new file") from None
    try:
        with open(descriptor, "w", encoding="utf-8") as out:
            return _write(store, out)
    except BaseException as error:
        file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(
                f"{file}: cannot be written ({error.strerror}); free room, or name another file"
            ) from None
        raise


def _write(store: Store, out: TextIO) -> int:
    count = 0
    for job in ended_jobs(store, float("inf")):
        out.write(json.dumps(job, separators=(",", ":")) + "\n")
        count += 1
    return count
