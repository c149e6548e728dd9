"""The cloud bill by user, queue, day, job or offer; what still runs is counted up to now."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone

from sqlalchemy import Connection, func, select

from starburst.store import schema as t
from starburst.store.queries import machines
from starburst.store.store import Store

#: What a bill can be split by.
GROUPS = ("user", "queue", "day", "job", "offer")

#: Micro-dollars of ended machines and of those that still run.
Bills = tuple[Counter[str], Counter[str]]


@dataclass(frozen=True, slots=True)
class CostRow:
    """A line of the bill; `running_micro_usd` is the part of it whose machines have not ended yet."""

    name: str
    micro_usd: int
    running_micro_usd: int


def costs(store: Store, by: str, now: float) -> list[CostRow]:
    """The bill up to `now` (scheduler seconds) by one of GROUPS, dearest first; days in order.

    Raises:
        ValueError: `by` is none of them.
    """
    if by not in GROUPS:
        raise ValueError(f"costs can be split by {', '.join(GROUPS)}, not by {by!r}")
    split = _by_machine if by in ("day", "offer") else _by_job
    with store.read() as conn:
        settled, running = split(conn, by, now)
    rows = [CostRow(key, settled[key] + running[key], running[key]) for key in {*settled, *running}]
    rows = [row for row in rows if row.micro_usd]
    return sorted(rows, key=lambda row: (0 if by == "day" else -row.micro_usd, row.name))


def _by_machine(conn: Connection, by: str, now: float) -> Bills:
    """A machine's bill belongs to its offer, and to the day on which it became final (UTC)."""
    columns = (t.instances.c.offer_name, t.instances.c.ended_at, t.instances.c.micro_usd)
    settled, running = Counter[str](), Counter[str]()
    for offer_name, ended_at, micro_usd in conn.execute(select(*columns).where(t.instances.c.micro_usd > 0)):
        settled[offer_name if by == "offer" else _day(ended_at)] += micro_usd
    for machine in machines(conn):
        running[machine.offer.name if by == "offer" else _day(now)] += machine.cost(now).micro_usd
    return settled, running


def _by_job(conn: Connection, by: str, now: float) -> Bills:
    """A job's part is its settled shares and its shares of machines that still run."""
    key = t.jobs.c.id if by == "job" else t.jobs.c[by]
    paid = select(key, func.sum(t.jobs.c.cloud_micro_usd)).where(t.jobs.c.cloud_micro_usd > 0).group_by(key)
    sharing = select(t.jobs.c.id, key.label("key")).where(t.jobs.c.open_bills > 0)
    settled = Counter({row[0]: int(row[1]) for row in conn.execute(paid)})
    keys = {row[0]: row[1] for row in conn.execute(sharing)}
    running = Counter[str]()
    for machine in machines(conn):
        for job_id, micro_usd in machine.shares(now).items():
            running[keys[job_id]] += micro_usd
    return settled, running


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).date().isoformat()
