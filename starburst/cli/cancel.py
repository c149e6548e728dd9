"""`starburst cancel`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from starburst.cli.session import note_if_down, open_store
from starburst.domain.job import is_over
from starburst.store import queries


def cancel(
    jobs: Annotated[list[str], typer.Argument(help="Ids, names or unique beginnings of them.")],
) -> None:
    """Cancel jobs, wherever they are. A running one gets SIGTERM and its grace first."""
    with open_store() as store:
        rows = [queries.job(store, name) for name in jobs]
        store.cancel([row.id for row in rows if not is_over(row.phase)], time.time())
    for row in rows:
        said = f"is over already: {row.phase}" if is_over(row.phase) else "is being cancelled"
        print(f"job/{row.id} {said}")
    note_if_down()
