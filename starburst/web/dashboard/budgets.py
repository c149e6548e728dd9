"""What other wait budgets would have cost: the newest finished jobs, replayed under each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import and_, select

from sim.world import SimJob
from starburst.app.wiring.stored import stored_config
from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.domain.cloud import Offer
from starburst.domain.node import Node
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.listings import dashboard_queries
from starburst.store.store import Store
from starburst.web.background import BackgroundCache
from starburst.web.dashboard.replay import ReplayedPast, as_queued, no_wait, one_machine_a_job, replay

#: Newest finished jobs that are replayed, and from how many on the points are more than chance.
MOST_JOBS, FEW_JOBS = 1000, 500
#: P in percent; 0 is No-Wait. The present P is added.
PERCENTS = (0.0, 5.0, 10.0, 15.0, 25.0, 35.0, 50.0, 75.0, 100.0)
#: Wall seconds between two computations: at least these, and so many per CPU second of one.
PAUSE_S, PAUSE_PER_CPU_S = 600.0, 100.0
#: Waiting policies that have no P.
WITHOUT_BUDGET = ("no-wait", "infinite")
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """What the jobs would have cost and taken under one P: dollars, mean hours, percent of No-Wait's."""

    percent: float
    cost_usd: float
    wait_h: float
    jct_h: float
    saved_percent: float = 0.0
    longer_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class BudgetReplay:
    """The points by P, and the jobs that they are from; without points the reason is in `problem`."""

    points: tuple[BudgetPoint, ...] = ()
    #: The present P; None while `policy.factor` replaces it.
    present: float | None = None
    jobs: int = 0
    #: Submission of the first and of the last job, scheduler seconds.
    first_at: float = 0.0
    last_at: float = 0.0
    problem: str = ""

    @property
    def is_small(self) -> bool:
        """Whether the jobs are too few for a sound choice."""
        return self.jobs < FEW_JOBS


class BudgetReplayCache:
    """Caches the last replay; the next one starts in the background when the page is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest = BackgroundCache[float, BudgetReplay](
            "budgets", lambda cpu_s: max(PAUSE_S, PAUSE_PER_CPU_S * cpu_s)
        )

    def ask(self, now: float, wait_s: float = 0.0) -> BudgetReplay | None:
        """The last replay, None before the first; waits for one at most `wait_s` wall seconds."""
        self._latest.refresh(now, lambda: budgets(self._store), wait_s)
        known = self._latest.latest()
        return None if known is None else known[1]


def budgets(store: Store, percents: Sequence[float] = PERCENTS) -> BudgetReplay:
    """Replay the newest finished jobs under each P, on the nodes and offers as they are now.

    Run times are those that the jobs had. No caps, no quotas, no packing; starburst.io/max-wait is ignored.
    """
    settings = stored_config(store).policy.settings()
    if settings.waiting in WITHOUT_BUDGET:
        return BudgetReplay(problem=f"the waiting policy {settings.waiting} has no budget P")
    with store.read() as conn:
        nodes, offers = dashboard_queries.nodes(conn), dashboard_queries.offers(conn)
    records = _finished(store)
    if not records:
        return BudgetReplay(problem="no job has finished yet")
    present = settings.budget_percent if settings.factor is None else None
    asked = sorted({*percents, *([] if present is None else [present])})
    points = tuple(_points(one_machine_a_job(settings), nodes, offers, records, asked))
    return BudgetReplay(points, present, len(records), records[0].submitted_at, records[-1].submitted_at)


def _points(
    settings: Settings,
    nodes: Sequence[Node],
    offers: Sequence[Offer],
    records: Sequence[JobRecord],
    percents: Sequence[float],
) -> Iterator[BudgetPoint]:
    """A point for each P, the first of which is No-Wait."""
    base: BudgetPoint | None = None
    for percent in percents:
        with_p = replace(settings, budget_percent=percent, factor=None) if percent else no_wait(settings)
        point = _point(percent, replay(with_p, nodes, offers, map(_past, records)))
        base = base or point
        yield replace(
            point,
            saved_percent=100 * (1 - point.cost_usd / base.cost_usd) if base.cost_usd else 0.0,
            longer_percent=100 * (point.jct_h / base.jct_h - 1) if base.jct_h else 0.0,
        )


def _past(record: JobRecord) -> SimJob:
    return as_queued(record, (record.ended_at or 0.0) - (record.started_at or 0.0))


def _point(percent: float, past: ReplayedPast) -> BudgetPoint:
    ended = [job for job in past.jobs.values() if job.started_at is not None and job.ended_at is not None]
    count = max(1, len(ended))
    wait_s = sum((job.first_started_at or job.started_at or 0.0) - job.submitted_at for job in ended)
    jct_s = sum((job.ended_at or 0.0) - job.submitted_at for job in ended)
    end = max((job.ended_at or 0.0 for job in ended), default=0.0)
    cost_usd = past.bill(end).micro_usd / 1e6
    return BudgetPoint(percent, cost_usd, wait_s / count / HOUR_S, jct_s / count / HOUR_S)


def _finished(store: Store) -> list[JobRecord]:
    """The newest jobs whose command has ended with any exit code, in order of arrival."""
    c = t.jobs.c
    ran = and_(c.phase.in_(("succeeded", "failed")), c.started_at.is_not(None), c.ended_at.is_not(None))
    newest = select(c.record).where(ran).order_by(c.seq.desc()).limit(MOST_JOBS)
    with store.read() as conn:
        return [codec.decode(JobRecord, text) for text in conn.scalars(newest)][::-1]
