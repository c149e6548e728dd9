"""The queues: as configured, and how many of their jobs are in each phase."""

from __future__ import annotations

from starburst.app.jobs.job_keys import Keys
from starburst.app.wiring.stored import stored_config
from starburst.domain.job import Phase
from starburst.store.listings.pages import QueueScope, counts_by_queue
from starburst.store.listings.row_types import SUBMITTED
from starburst.store.store import Store

PHASES = (SUBMITTED, *(phase.value for phase in Phase))


def queue_rows(store: Store, scope: QueueScope = None) -> list[Keys]:
    """The configured queues, then those that jobs name, within the reader's scope; None is all."""
    config = stored_config(store)
    counts = counts_by_queue(store, scope)
    configured = {queue.name: queue for queue in config.queues if scope is None or queue.name in scope}
    rows: list[Keys] = []
    for name in dict.fromkeys([*configured, *sorted(counts)]):
        found, queue = counts.get(name, {}), configured.get(name)
        own = None if queue is None else queue.budget_percent
        rows.append(
            {
                "name": name,
                "configured": queue is not None,
                "share": 1.0 if queue is None else queue.share,
                "priority": 0 if queue is None else queue.priority,
                "budget_percent": config.policy.budget_percent if own is None else own,
                "jobs": {phase: found[phase] for phase in PHASES if phase in found},
            }
        )
    return rows
