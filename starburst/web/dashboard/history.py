"""Charts from the store: spending since 00:00 UTC; over the last day GPUs in use, waiting jobs, waits.

A job counts with its last run only, so what earlier runs of it took is missing from the GPUs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sqlalchemy import Connection, or_, select

from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.job import Site
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.listings import dashboard_queries as board
from starburst.store.listings import queries
from starburst.store.store import Store
from starburst.web.background import BackgroundCache

#: Scheduler seconds that the charts show, and the number of their points.
WINDOW_S, POINTS = 86_400.0, 96
#: Newest jobs that are counted.
MOST_JOBS = 5000
DAY_S = 86_400.0
#: Wall seconds between two computations.
EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over time: values at equal distances, and a level that they are compared with."""

    title: str
    values: tuple[float, ...]
    unit: str
    level: float | None = None
    level_name: str = ""
    #: Another line, and its name.
    rival: tuple[float, ...] = ()
    rival_name: str = ""

    @property
    def top(self) -> float:
        """The value at the upper edge."""
        return max(*self.values, *self.rival, self.level or 0.0, 1e-9) * 1.08

    def line(self, width: float, height: float) -> str:
        """The points of the line in an image of this size."""
        return self._points(self.values, width, height)

    def rival_line(self, width: float, height: float) -> str:
        """The points of the other line."""
        return self._points(self.rival, width, height)

    def _points(self, values: Sequence[float], width: float, height: float) -> str:
        step = width / max(1, len(values) - 1)
        points = ((n * step, height * (1 - value / self.top)) for n, value in enumerate(values))
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


@dataclass(frozen=True, slots=True)
class DayHistory:
    """The charts, and the time at which they begin, scheduler seconds."""

    begin: float
    charts: tuple[Chart, ...]


class HistoryCache:
    """Caches the charts and computes the next ones in the background."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest = BackgroundCache[float, DayHistory]("history", lambda _: EVERY_S)

    def ask(
        self, now: float, cap_usd: float | None, target: float | None, no_wait: Sequence[InstanceRecord]
    ) -> DayHistory | None:
        """The last charts, None before the first; `history` has the arguments."""
        self._latest.refresh(now, lambda: history(self._store, now, cap_usd, target, no_wait))
        known = self._latest.latest()
        return None if known is None else known[1]


def history(
    store: Store,
    now: float,
    cap_usd: float | None,
    target: float | None,
    no_wait: Sequence[InstanceRecord] = (),
) -> DayHistory:
    """The charts up to `now`: spending since 00:00 UTC, all else over a day.

    `cap_usd`: a cap per day on all jobs; `target`: P as a share; `no_wait`: the machines that No-Wait would
    have rented for today's jobs.
    """
    begin = now - WINDOW_S
    with store.read() as conn:
        records = _jobs(conn, begin)
        machines = queries.machines(conn, ended_after=begin)
        total = sum(node.capacity.gpus for node in board.nodes(conn))
    times = [*(begin + WINDOW_S * n / (POINTS - 1) for n in range(POINTS - 1)), now]
    waits = [(r.submitted_at, _left_queue(r, now), 1.0) for r in records]
    placed = [record for record in records if record.alive or record.ended_at is not None]
    gpus = {site: [_run(r, now) for r in placed if r.site is site] for site in (Site.CLUSTER, Site.CLOUD)}
    since = midnight(now)
    today = [since + (now - since) * n / (POINTS - 1) for n in range(POINTS)]
    charts = (
        Chart(
            "Spent today",
            _spending(machines, today, now),
            "$",
            cap_usd,
            "cap",
            _spending(no_wait, today, now) if no_wait else (),
            "No-Wait",
        ),
        Chart("Cluster GPUs in use", levels(gpus[Site.CLUSTER], times), "", float(total), "total"),
        Chart("Cloud GPUs in use", levels(gpus[Site.CLOUD], times), ""),
        Chart("Jobs not started yet", levels(waits, times), ""),
        Chart("Realised P, ended jobs", _realised(records, times), "%", target and 100 * target, "P"),
    )
    return DayHistory(begin, charts)


def midnight(now: float) -> float:
    """The beginning of the day, on the scheduler's clock: in UTC, as caps have it."""
    return now - now % DAY_S


def levels(spans: Sequence[tuple[float, float, float]], times: Sequence[float]) -> tuple[float, ...]:
    """The sum of the weights of the spans (begin, end, weight) that contain each time."""
    changes = sorted([(begin, weight) for begin, _, weight in spans] + [(end, -w) for _, end, w in spans])
    sums = [0.0, *accumulate(weight for _, weight in changes)]
    ats = [at for at, _ in changes]
    return tuple(max(0.0, sums[bisect_right(ats, at)]) for at in times)


def _jobs(conn: Connection, begin: float) -> list[JobRecord]:
    """The newest jobs that had not ended at `begin`."""
    c = t.jobs.c
    alive = select(c.record).where(or_(c.ended_at.is_(None), c.ended_at > begin))
    texts = conn.scalars(alive.order_by(c.seq.desc()).limit(MOST_JOBS))
    return [codec.decode(JobRecord, text) for text in texts]


def _left_queue(record: JobRecord, now: float) -> float:
    ends = [at for at in (record.started_at, record.ended_at) if at is not None]
    return min(ends) if ends else now + 1


def _run(record: JobRecord, now: float) -> tuple[float, float, float]:
    gpus = float(sum(task.gpus for task in record.job.tasks))
    began = now + 1 if record.started_at is None else record.started_at
    return began, max(began, now + 1 if record.ended_at is None else record.ended_at), gpus


def _spending(machines: Sequence[InstanceRecord], times: Sequence[float], now: float) -> tuple[float, ...]:
    """Dollars since the first time, as machines were paid for second by second."""

    def spent(machine: InstanceRecord) -> Callable[[float], float]:
        began = machine.launched_at
        if began is None:
            return lambda _: 0.0
        lasted_s = (now if machine.ended_at is None else machine.ended_at) - began
        dollars = machine.cost(now).micro_usd / 1e6
        if lasted_s <= 0:  # its launch made nothing, or is of this moment
            return lambda at: dollars if at > began else 0.0
        return lambda at: dollars * min(1.0, max(0.0, (at - began) / lasted_s))

    of_machines = [spent(machine) for machine in machines]
    before = sum(bill(times[0]) for bill in of_machines)
    return tuple(sum(bill(at) for bill in of_machines) - before for at in times)


def _realised(records: Sequence[JobRecord], times: Sequence[float]) -> tuple[float, ...]:
    """Percent by which waits have prolonged the jobs that ended since the first time, up to each time.

    While a job is held or blocked it does not wait for a place.
    """
    ended = sorted(
        (r.ended_at, max(0.0, r.started_at - r.queued_at), r.ended_at - r.started_at)
        for r in records
        if r.ended_at is not None and r.started_at is not None and r.ended_at >= times[0]
    )
    ats = [at for at, _, _ in ended]
    waited = [0.0, *accumulate(wait for _, wait, _ in ended)]
    ran = [0.0, *accumulate(run for _, _, run in ended)]
    found = (bisect_left(ats, at) for at in times)
    return tuple(100 * waited[n] / ran[n] if ran[n] > 0 else 0.0 for n in found)
