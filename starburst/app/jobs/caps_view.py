"""The state of spending caps: the keys of `starburst cost --caps`, which are stable (docs/cli.md)."""

from __future__ import annotations

from sqlalchemy import select

from starburst.app.jobs.job_keys import Keys
from starburst.app.times import iso
from starburst.core.model.budget_values import CapLedger, CapStatus
from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.steps.budget import cap_statuses
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Snapshot
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.listings import dashboard_queries as board
from starburst.store.listings import queries
from starburst.store.listings.costs import settled_since
from starburst.store.rows import chunks
from starburst.store.store import Store


def cap_rows(store: Store, settings: Settings, now: float) -> list[Keys]:
    """All caps at `now`, in the order of the config."""
    return [cap_keys(standing) for standing in stored_standings(store, settings, now)]


def cap_keys(standing: CapStatus) -> Keys:
    """One cap as JSON keys."""
    cap = standing.cap
    warned = "warned" if standing.warns and standing.spent > 0 else "open"
    return {
        "name": cap.name,
        "per": cap.per,
        "queue": cap.queue,
        "user": cap.user,
        "cap_usd": cap.limit.micro_usd / 1_000_000,
        "spent_usd": round(standing.spent) / 1_000_000,
        "reserved_usd": round(standing.reserved) / 1_000_000,
        "left_usd": round(standing.left) / 1_000_000,
        "usd_per_hour": round(standing.rate) / 1_000_000,
        "window_start": iso(cap.window(standing.end - 1)[0]),
        "window_end": iso(standing.end),
        "warn_at": cap.warn_at,
        "then": cap.then,
        "state": "reached" if standing.is_reached else warned,
    }


def stored_standings(store: Store, settings: Settings, now: float) -> list[CapStatus]:
    """The state of all caps at `now`, in the order of the config; reads only jobs that pay for machines.

    A whole core takes long to rebuild while many jobs wait.
    """
    if not settings.caps:
        return []
    with store.read() as conn:
        facts, machines = board.facts(conn), queries.machines(conn)
        nodes, speeds = board.nodes(conn), board.speeds(conn)
        payers = {job_id for machine in machines for job_id in machine.billed_to}
        texts = [
            text
            for some in chunks(sorted(payers))
            for text in conn.scalars(select(t.jobs.c.record).where(t.jobs.c.id.in_(some)))
        ]
    jobs = [codec.decode(JobRecord, text) for text in texts]
    core = restore(settings, Snapshot(facts, jobs, machines, nodes, speeds=speeds))
    core.state.now = max(core.state.now, now)
    open_books(store, core, core.state.now)
    return list(cap_statuses(core.state).values())


def open_books(store: Store, core: Scheduler, now: float) -> None:
    """Begin the ledgers of new caps with what their present window has cost already."""
    for cap in core.state.settings.caps:
        if cap.name not in core.state.ledgers:
            start, _ = cap.window(now)
            core.state.ledgers[cap.name] = CapLedger(start, settled_since(store, cap, start))
    core.state.books = None
