"""`starburst top`: what is used and spent now, and the jobs that use it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Annotated, Any, cast

import typer

from starburst.app.times import local_clock
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.jobs.queues import AT_WORK
from starburst.cli.jobs.status import listing
from starburst.cli.output import Format, say
from starburst.domain.job import Phase
from starburst.domain.money import Money
from starburst.store.listings.row_types import SUBMITTED, JobRow

EVERY_S = 2.0
SHOWN = (SUBMITTED, *(phase.value for phase in Phase if not phase.is_end))


def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once; so it is in a pipe.")] = False,
) -> None:
    """Show what is used and spent now, redrawn every two seconds."""
    with open_backend() as backend:
        backend.note_if_down()
        if once or not sys.stdout.isatty():
            rows = _open_jobs(backend)
            for line in _figures(backend, rows):
                say(line)
            listing(backend.now()).print(rows, Format.TABLE)
        else:
            _redraw(backend)


def _open_jobs(backend: Backend) -> list[JobRow]:
    """Jobs that have not ended: those at work first, of both the oldest first."""
    rows = backend.jobs(phases=SHOWN)
    rows.sort(key=lambda row: row.phase not in AT_WORK)
    return rows


def _figures(backend: Backend, rows: list[JobRow]) -> list[str]:
    counts = Counter(row.phase for row in rows)
    jobs = (
        ", ".join(f"{counts[phase]} {phase}" for phase in SHOWN if counts[phase]) or "none that has not ended"
    )
    nodes, machines = backend.nodes(), backend.instances()
    gpus = sum(cast(Any, node["gpus"]) for node in nodes)
    free = sum(cast(Any, node["free_gpus"]) for node in nodes)
    rate = sum((machine.rate for machine in machines), Money())
    now = backend.now()
    return [
        f"{local_clock(now)(now)}  jobs: {jobs}",
        f"cluster: {gpus - free} of {gpus} GPUs in use on {len(nodes)} node{'' if len(nodes) == 1 else 's'}; "
        f"cloud: {len(machines)} machine{'' if len(machines) == 1 else 's'}, {rate}/h",
    ]


def _redraw(backend: Backend) -> None:
    from rich.console import Group  # noqa: PLC0415 - slow to import, and of no use in a pipe
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            rows = _open_jobs(backend)
            lines = [Text(line) for line in _figures(backend, rows)]
            shown = rows[: max(1, live.console.height - len(lines) - 2)]
            live.update(Group(*lines, listing(backend.now()).table(shown, Format.TABLE)), refresh=True)
            time.sleep(EVERY_S)
