"""Shell completion of job names, queues and phases, from the store of the home."""

from __future__ import annotations

from starburst.app.config.home import Home
from starburst.domain.job import Phase
from starburst.store.errors import StoreError
from starburst.store.listings import queries
from starburst.store.listings.queries import SUBMITTED, JobRow
from starburst.store.store import Store

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
    home = Home.default()
    if not home.has_store:
        return []
    try:
        with Store.open(home.store) as store:
            return queries.jobs(store, limit=MOST)[::-1]
    except (StoreError, OSError):
        return []
