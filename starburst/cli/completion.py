"""Shell completion of job names, queues and phases, from the store of the home."""

from __future__ import annotations

from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.domain.phase import Phase
from starburst.store.databases.sqlite_reader import open_current
from starburst.store.errors import StoreError
from starburst.store.listings import job_rows
from starburst.store.listings.row_types import SUBMITTED, JobRow

#: Newest jobs that are offered.
MOST = 200


def complete_jobs(incomplete: str) -> list[str]:
    """Ids of jobs that begin so; `job/ID` if it was begun so."""
    prefix = "job/" if incomplete.startswith("job/") else ""
    return [prefix + row.id for row in _newest() if row.id.startswith(incomplete.removeprefix("job/"))]


def complete_queues(incomplete: str) -> list[str]:
    """Names of the queues of known jobs that begin so."""
    return sorted({row.queue for row in _newest() if row.queue.startswith(incomplete)})


def complete_phases(incomplete: str) -> list[str]:
    """Phases that begin so."""
    return [phase for phase in (SUBMITTED, *(it.value for it in Phase)) if phase.startswith(incomplete)]


def _newest() -> list[JobRow]:
    """The newest jobs first; none without a readable store."""
    try:
        home = Home.default()
        if isinstance(home.store, Path):
            with open_current(home.store) as reader:
                if reader is not None:
                    with reader.read() as ask:
                        return job_rows.jobs(ask, limit=MOST)[::-1]
        if not home.has_store:
            return []
        from starburst.store.listings import queries  # noqa: PLC0415 - slow to import
        from starburst.store.store import Store  # noqa: PLC0415 - slow to import

        with Store.open(home.store) as store:
            return queries.jobs(store, limit=MOST)[::-1]
    except (UserError, StoreError, OSError):
        return []
