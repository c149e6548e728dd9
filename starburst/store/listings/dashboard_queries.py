"""Queries for the dashboard and the metrics; each result has a bounded size.

Times are scheduler seconds, amounts micro-dollars.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, or_, select

from starburst.core.model.actions import Slot
from starburst.core.model.phases import Obstacle
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.views.snapshot import Facts
from starburst.domain.cloud import Offer
from starburst.domain.job import Phase, Site
from starburst.domain.node import Node
from starburst.policy.boot_times import BootTimes
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.listings.row_types import JobRow
from starburst.store.store import ALIVE_JOBS, LIVE_INSTANCES, LIVE_JOBS

QUEUED = Phase.QUEUED.value
#: Phases in which a job may have slots.
PLACED = [*ALIVE_JOBS, Phase.OFFLOADING.value]
#: Largest number of search hits that is counted.
MOST_HITS = 10_000

_ROW = [t.jobs.c[name] for name in JobRow.__dataclass_fields__]


@dataclass(frozen=True, slots=True)
class JobCount:
    """The number of jobs of a queue in a phase, at a site or at none."""

    queue: str
    phase: str
    site: str | None
    count: int


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job that has slots, and where they are."""

    id: str
    seq: int
    phase: str
    site: str | None
    slots: tuple[Slot, ...]
    #: Slots reserved on the cluster for a return, and in the cloud for a move.
    reserved: tuple[Slot, ...]
    moving: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A queued job, the time it was queued, and the obstacle to its offload; "" is none."""

    row: JobRow
    queued_at: float
    lacks: str


@dataclass(slots=True)
class _Places:
    slots: tuple[Slot, ...] = ()
    reserved: tuple[Slot, ...] = ()
    moving: tuple[Slot, ...] = ()


@dataclass(slots=True)
class _Wait:
    queued_at: float = 0.0
    obstacle: Obstacle | None = None


def job_counts(conn: Connection) -> list[JobCount]:
    """Numbers of jobs that have not ended, by queue, phase and site."""
    c = t.jobs.c
    key = (c.queue, c.phase, c.site)
    counted = select(*key, func.count()).where(c.phase.in_(LIVE_JOBS)).group_by(*key)
    return [JobCount(*row) for row in conn.execute(counted)]


def placed_jobs(conn: Connection) -> list[PlacedJob]:
    """Jobs with slots, in order of arrival."""
    c = t.jobs.c
    placed = select(c.id, c.seq, c.phase, c.site, c.record).where(c.phase.in_(PLACED))
    found = []
    for id_, seq, phase, site, text in conn.execute(placed.order_by(c.seq)):
        places = codec.decode(_Places, text)
        found.append(PlacedJob(id_, seq, phase, site, places.slots, places.reserved, places.moving))
    return found


def on_cluster(holder: PlacedJob) -> tuple[Slot, ...]:
    """The slots of a job on nodes of the cluster; `reserved` slots are separate."""
    return holder.slots if holder.site == Site.CLUSTER.value and holder.phase in ALIVE_JOBS else ()


def nodes(conn: Connection) -> tuple[Node, ...]:
    """The nodes of the cluster as last reported."""
    body = conn.scalar(select(t.facts.c.body).where(t.facts.c.key == "nodes"))
    return codec.decode(tuple[Node, ...], body) if body else ()


def offers(conn: Connection) -> tuple[Offer, ...]:
    """The offers of the cloud as last reported, with the seconds until their instances are up as expected."""
    body = conn.scalar(select(t.facts.c.body).where(t.facts.c.key == "offers"))
    known = codec.decode(tuple[Offer, ...], body) if body else ()
    boots = BootTimes.restored((speeds(conn) or {}).get("boots", {}))
    return tuple(replace(offer, ready_s=boots.expected_s(offer)) for offer in known)


def speeds(conn: Connection) -> dict[str, Any] | None:
    """What the core has learnt of throughputs, boot times and pulls; None if it has stored nothing of it."""
    body = conn.scalar(select(t.facts.c.body).where(t.facts.c.key == "speeds"))
    return codec.decode(dict[str, Any], body) if body else None


def facts(conn: Connection) -> Facts:
    """The small documents of the core's state."""
    body = conn.scalar(select(t.facts.c.body).where(t.facts.c.key == "facts"))
    return codec.decode(Facts, body) if body else Facts()


def queued_jobs(conn: Connection, limit: int) -> list[QueuedJob]:
    """Queued jobs by deadline; jobs without a deadline come last, in order of arrival."""
    c = t.jobs.c
    queued = select(*_ROW, c.record).where(c.phase == QUEUED)
    # Each part walks an index; an order by both would sort the whole queue.
    due = queued.where(c.deadline.is_not(None)).order_by(c.deadline, c.seq).limit(limit)
    rows = list(conn.execute(due))
    if len(rows) < limit:
        patient = queued.where(c.deadline.is_(None)).order_by(c.seq).limit(limit - len(rows))
        rows += conn.execute(patient)
    found = []
    for *columns, text in rows:
        wait = codec.decode(_Wait, text)
        lacks = "" if wait.obstacle is None else wait.obstacle.text
        found.append(QueuedJob(JobRow(*columns), wait.queued_at, lacks))
    return found


def search(conn: Connection, text: str, phases: Collection[str], limit: int) -> tuple[list[JobRow], int]:
    """The newest jobs with all words in id, name, user or queue, and the number of hits up to MOST_HITS."""
    c = t.jobs.c
    chosen = [*([c.phase.in_(phases)] if phases else []), *words_in(text)]
    newest = select(*_ROW).where(*chosen).order_by(c.submitted_at.desc(), c.seq.desc()).limit(limit)
    some = select(c.seq).where(*chosen).limit(MOST_HITS).subquery()
    count = conn.scalar(select(func.count()).select_from(some)) or 0
    return [JobRow(*row) for row in conn.execute(newest)], count


def words_in(text: str) -> list[ColumnElement[bool]]:
    """That each word of a text is in a job's id, name, user or queue."""
    c = t.jobs.c
    columns = (c.id, c.name, c.user, c.queue)
    return [
        or_(*(column.icontains(word, autoescape=True) for column in columns)) for word in text.split()[:8]
    ]


def machine_phases(conn: Connection) -> dict[tuple[str, str], int]:
    """Numbers of instances that have not ended, by phase and offer."""
    c = t.instances.c
    key = (c.phase, c.offer_name)
    counted = select(*key, func.count()).where(c.phase.in_(LIVE_INSTANCES)).group_by(*key)
    return {(row[0], row[1]): row[2] for row in conn.execute(counted)}


def ended_since(conn: Connection, since: float) -> int:
    """Micro-dollars of ended instances since a time; bills that began earlier count in proportion."""
    total = 0.0
    for c in (t.instances.c, t.past_instances.c):
        share = case((c.launched_at >= since, 1.0), else_=(c.ended_at - since) / (c.ended_at - c.launched_at))
        ended = select(func.sum(c.micro_usd * share)).where(c.micro_usd > 0, c.ended_at > since)
        total += conn.scalar(ended) or 0.0
    return round(total)


def running_since(machines: Collection[InstanceRecord], since: float, now: float) -> int:
    """Micro-dollars of running instances since a time."""
    return sum(
        machine.rate.for_seconds(machine.billed_s(max(since, machine.launched_at), now)).micro_usd
        for machine in machines
        if machine.launched_at is not None
    )


def unsettled(
    conn: Connection, machines: Collection[InstanceRecord], now: float
) -> Mapping[tuple[str, str], int]:
    """Micro-dollars of instances that have not ended, by queue and user of the jobs on them."""
    c, owed = t.jobs.c, dict[tuple[str, str], int]()
    sharing = select(c.id, c.queue, c.user).where(c.open_bills > 0)
    whose = {row[0]: (row[1], row[2]) for row in conn.execute(sharing)}
    for machine in machines:
        for job_id, micro_usd in machine.shares(now).items():
            if job_id in whose:
                owed[whose[job_id]] = owed.get(whose[job_id], 0) + micro_usd
    return owed
