"""`starburst logs`: what a job wrote."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.errors import UserError
from starburst.app.home import Home
from starburst.app.logs import Log, find_logs
from starburst.cli.session import open_store
from starburst.domain.job import is_over
from starburst.store import queries

POLL_S = 0.2


def logs(
    job: Annotated[str, typer.Argument(help="Id, name or unique beginning of one.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Of this run; the last if absent.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Of this task of a gang; all if absent.")
    ] = None,
) -> None:
    """Print what a job wrote."""
    home, known = Home.default(), dict[Path, Log]()
    with open_store() as store:
        while True:
            row = queries.job(store, job)
            # Asked before reading, so that nothing written before the end is missed.
            final = not follow or is_over(row.phase)
            for log in find_logs(home, row.id, attempt, rank):
                known.setdefault(log.path, log)
            _print_new(list(known.values()), final=final)
            if final:
                break
            time.sleep(POLL_S)
    if known:
        return
    if attempt is not None and attempt > row.attempt:
        last = f"the last run of job/{row.id} is {row.attempt}"
        raise UserError(f"--attempt: {attempt}: {last}; give one up to that")
    ranks = [log.rank for log in find_logs(home, row.id, attempt)]
    if ranks:
        raise UserError(f"--rank: {rank}: the last task of job/{row.id} is {max(ranks)}; give one up to that")
    print(f"job/{row.id} has written nothing: {row.phase}", file=sys.stderr)


def _print_new(known: list[Log], *, final: bool) -> None:
    """Lines not printed yet; those of a gang begin with their rank."""
    gang = len({log.rank for log in known}) > 1
    for log in known:
        for line in log.new_lines(final=final):
            sys.stdout.write(f"[{log.rank}] {line}" if gang else line)
    sys.stdout.flush()
