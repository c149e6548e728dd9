"""The cloud bill by user, queue, day, month, job or offer. Running instances are billed up to now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from sqlalchemy import Connection, func, select, union_all

from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.job import Site
from starburst.domain.money import Money
from starburst.domain.resources import Resources, total
from starburst.policy.caps import HOUR_S, Cap, window
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.listings.queries import machines
from starburst.store.rows import chunks
from starburst.store.store import Store


class CostSplit(str, Enum):
    """What a bill is split by; `day` and `month` are windows of the UTC calendar."""

    USER = "user"
    QUEUE = "queue"
    DAY = "day"
    MONTH = "month"
    JOB = "job"
    OFFER = "offer"


TIMES = ("day", "month")

#: Micro-dollars of ended instances, and of running ones.
Bills = tuple[Counter[str], Counter[str]]


@dataclass(frozen=True, slots=True)
class CostRow:
    """A line of the bill; `running_micro_usd` is the part of instances that have not ended yet."""

    name: str
    micro_usd: int
    running_micro_usd: int
    #: Reference cost of the cluster's GPUs (cluster.usd_per_gpu_hour), not part of the bill; None without a
    #: price.
    cluster_micro_usd: int | None = None


@dataclass(frozen=True, slots=True)
class _Tasks:
    tasks: tuple[Resources, ...]


@dataclass(frozen=True, slots=True)
class _Asks:
    """The part of a job's record that holds its requested resources."""

    job: _Tasks


def costs(store: Store, by: str, now: float) -> list[CostRow]:
    """The bill up to `now` (scheduler seconds) by a `CostSplit`, dearest first; days and months in order.

    Raises:
        ValueError: `by` is not the value of a `CostSplit`.
    """
    splits = [split.value for split in CostSplit]
    if by not in splits:
        raise ValueError(f"costs can be split by {', '.join(splits)}, not by {by!r}")
    config = store.fact("config") or {}
    price = config.get("cluster", {}).get("usd_per_gpu_hour")
    split = _by_machine if by in (*TIMES, "offer") else _by_job
    with store.read() as conn:
        settled, running = split(conn, by, now)
        at_home = Counter[str]() if price is None else _cluster(conn, by, now, Money.of(price))
    rows = [
        CostRow(
            key, settled[key] + running[key], running[key], None if price is None else round(at_home[key])
        )
        for key in {*settled, *running, *at_home}
    ]
    rows = [row for row in rows if row.micro_usd or row.cluster_micro_usd]
    return sorted(rows, key=lambda row: (*((0, 0) if by in TIMES else dearest_first(row)), row.name))


def dearest_first(row: CostRow) -> tuple[int, int]:
    """Sort key of lines of a bill: highest cost first."""
    return -row.micro_usd, -(row.cluster_micro_usd or 0)


def settled_since(store: Store, cap: Cap, since: float) -> float:
    """Micro-dollars that ended instances have cost the jobs of a cap from `since` on."""
    ended = select(t.instances.c.record).where(t.instances.c.ended_at > since, t.instances.c.micro_usd > 0)
    seconds: list[tuple[str, float]] = []
    with store.read() as conn:
        for text in conn.scalars(ended):
            machine = codec.decode(InstanceRecord, text)
            parts = machine.seconds(max(since, machine.launched_at or since), machine.ended_at or since)
            rate = machine.rate.micro_usd / HOUR_S
            seconds += [(job_id, rate * part) for job_id, part in parts.items()]
        covered: set[str] = set()
        for chunk in chunks(sorted({job_id for job_id, _ in seconds})):
            for table in (t.jobs, t.history):
                chosen = select(table.c.id).where(table.c.id.in_(chunk))
                for column, wanted in ((table.c.queue, cap.queue), (table.c.user, cap.user)):
                    chosen = chosen if wanted is None else chosen.where(column == wanted)
                covered.update(conn.scalars(chosen))
    return sum(cost for job_id, cost in seconds if job_id in covered)


def _by_machine(conn: Connection, by: str, now: float) -> Bills:
    """The bill of an instance counts for its offer, and evenly over the time from launch to end."""
    c = t.instances.c
    settled, running = Counter[str](), Counter[str]()
    p = t.past_instances.c
    ended = union_all(
        select(c.offer_name, c.launched_at, c.ended_at, c.micro_usd).where(c.micro_usd > 0),
        select(p.offer_name, p.launched_at, p.ended_at, p.micro_usd),
    )
    for offer_name, launched_at, ended_at, micro_usd in conn.execute(ended):
        for name, part in _over(by, offer_name, launched_at, ended_at, micro_usd):
            settled[name] += part
    for machine in machines(conn):
        since = now if machine.launched_at is None else machine.launched_at
        for name, part in _over(by, machine.offer.name, since, now, machine.cost(now).micro_usd):
            running[name] += part
    return settled, running


def _over(by: str, name: str, since: float, until: float, micro_usd: int) -> Iterator[tuple[str, int]]:
    """An amount under its name, or spread over calendar windows in whole micro-dollars that add up."""
    if by not in TIMES:
        yield name, micro_usd
        return
    at, told = since, 0
    while True:
        start, end = window(by, at)
        due = micro_usd if until <= end else round(micro_usd * (end - since) / (until - since))
        yield _date(start)[: 10 if by == "day" else 7], due - told
        if until <= end:
            return
        at, told = end, due


def _by_job(conn: Connection, by: str, now: float) -> Bills:
    """The bill of a job: its settled shares, and its shares of instances that still run."""
    key = t.jobs.c.id if by == "job" else t.jobs.c[by]
    settled = Counter[str]()
    for table in (t.jobs, t.history):
        of, bill = table.c[key.name], table.c.cloud_micro_usd
        for name, micro_usd in conn.execute(select(of, func.sum(bill)).where(bill > 0).group_by(of)):
            settled[name] += int(micro_usd)
    sharing = select(t.jobs.c.id, key.label("key")).where(t.jobs.c.open_bills > 0)
    keys = {row[0]: row[1] for row in conn.execute(sharing)}
    running = Counter[str]()
    for machine in machines(conn):
        for job_id, micro_usd in machine.shares(now).items():
            running[keys[job_id]] += micro_usd
    return settled, running


def _cluster(conn: Connection, by: str, now: float, price: Money) -> Counter[str]:
    """Reference cost of the last run of each job, if it was on the cluster."""
    c, costs_ = t.jobs.c, Counter[str]()
    last = select(c.id, c.user, c.queue, c.started_at, c.ended_at, c.record)
    last = last.where(c.site == Site.CLUSTER.value, c.started_at.is_not(None))
    h = t.history.c
    old = select(h.id, h.user, h.queue, h.started_at, h.ended_at, h.gpus)
    old = old.where(h.site == Site.CLUSTER.value, h.started_at.is_not(None))
    asked = [(row, total(codec.decode(_Asks, row.record).job.tasks).gpus) for row in conn.execute(last)]
    for row, gpus in (*asked, *((row, row.gpus) for row in conn.execute(old))):
        until = now if row.ended_at is None else row.ended_at
        amount = (price * gpus).for_seconds(max(0.0, until - row.started_at)).micro_usd
        name = {"user": row.user, "queue": row.queue, "job": row.id}.get(by, "cluster")
        for part_of, part in _over(by, name, row.started_at, until, amount):
            costs_[part_of] += part
    return costs_


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).date().isoformat()
