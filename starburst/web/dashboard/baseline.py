"""The No-Wait baseline: what today's jobs would have cost without waiting, by a replay on the core."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import Connection, or_, select

from sim.world import SimJob
from starburst.app.wiring.stored import stored_config
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.job import CloudChoice, Phase
from starburst.domain.money import Money
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.listings import dashboard_queries, queries
from starburst.store.store import Store
from starburst.web.background import BackgroundCache
from starburst.web.dashboard.replay import as_queued, no_wait, replay, unbound

#: Newest jobs of the day that are compared; a replay of so many takes a third of a second.
MOST_JOBS = 1000
#: Wall seconds between two replays.
EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Cloud bills of the same jobs up to now: the actual one, and No-Wait's."""

    jobs: int
    paid: Money
    no_wait: Money
    #: No-Wait's machines, with their bills up to now.
    machines: tuple[InstanceRecord, ...] = ()

    @property
    def saved(self) -> float | None:
        """The saved share of No-Wait's bill; None if that bill is zero."""
        rival = self.no_wait.micro_usd
        return (rival - self.paid.micro_usd) / rival if rival else None


class BaselineCache:
    """Caches the last comparison and computes the next one in the background."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._comparisons = BackgroundCache[float, Comparison]("no-wait-baseline", lambda _: EVERY_S)

    def ask(self, since: float, now: float) -> Comparison | None:
        """The last comparison, None before the first; starts another one when `EVERY_S` have passed."""
        self._comparisons.refresh(now, lambda: compare(self._store, since, now))
        known = self._comparisons.latest()
        return None if known is None else known[1]


def compare(store: Store, since: float, now: float) -> Comparison:
    """Compare the jobs submitted in `since` … `now` (scheduler seconds) with No-Wait on the same cluster.

    Earlier jobs hold the slots that they held. The run time of a job is that of its last run; a job that
    has not ended counts with its estimate, or the mean that was taken for one, and only up to now. One that
    ended before it ran, or may not run yet, is left out. In the replay no job returns to the cluster,
    starburst.io/max-wait is ignored, and a job that may not leave blocks no other job.
    """
    settings = stored_config(store).policy.settings()
    with store.read() as conn:
        nodes, offers = dashboard_queries.nodes(conn), dashboard_queries.offers(conn)
        ours = _submitted(conn, since)
        before = _there_before(conn, min((record.submitted_at for record in ours), default=since))
        running = [machine.shares(now) for machine in queries.machines(conn)]
    begin = min((record.submitted_at for record in ours), default=since)
    ids = {record.id for record in ours}
    paid = sum(record.cloud_micro_usd for record in ours)
    paid += sum(micro for shares in running for job_id, micro in shares.items() if job_id in ids)
    jobs = [_held(record, begin, now) for record in before]
    jobs += [again(record, now) for record in ours if _runs(record)]
    rival = replay(no_wait(settings), nodes, offers, jobs)
    return Comparison(len(ours), Money(paid), rival.bill(now), tuple(rival.until(now)))


def _submitted(conn: Connection, since: float) -> list[JobRecord]:
    c = t.jobs.c
    newest = select(c.record).where(c.submitted_at >= since).order_by(c.submitted_at.desc(), c.seq.desc())
    return [codec.decode(JobRecord, text) for text in conn.scalars(newest.limit(MOST_JOBS))][::-1]


def _there_before(conn: Connection, begin: float) -> list[JobRecord]:
    """Jobs that held slots of the cluster at `begin`."""
    c = t.jobs.c
    held = (c.submitted_at < begin) & (c.started_at <= begin) & (c.site == "cluster")
    still = or_(c.ended_at.is_(None), c.ended_at > begin)
    texts = conn.scalars(select(c.record).where(held, still).order_by(c.seq.desc()).limit(MOST_JOBS))
    return [codec.decode(JobRecord, text) for text in texts][::-1]


def _held(record: JobRecord, begin: float, now: float) -> SimJob:
    job = replace(unbound(record.job), cloud=CloudChoice.NEVER)
    return SimJob(job, begin, max(1.0, _end(record, now) - begin))


def _runs(record: JobRecord) -> bool:
    """Whether the job has run, or is to run as soon as there is room."""
    kept_out = record.phase.is_end or record.phase in (Phase.HELD, Phase.BLOCKED)
    return record.started_at is not None or not kept_out


def again(record: JobRecord, now: float) -> SimJob:
    """The job as it was queued, with the run time that it had or is taken to have."""
    began = record.started_at
    return as_queued(record, _estimate(record) if began is None else _end(record, now) - began)


def _end(record: JobRecord, now: float) -> float:
    if record.ended_at is not None and record.phase.is_end:
        return record.ended_at
    return max(now, (record.started_at or now) + _estimate(record))


def _estimate(record: JobRecord) -> float:
    """What the scheduler took it to be when it gave the job its wait."""
    if record.wait is not None:
        return record.wait.runtime_s
    return record.job.runtime_estimate_s or 3600.0
