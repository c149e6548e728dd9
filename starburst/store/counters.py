"""Counters that only grow, kept in the transaction of the decisions and bills that they count.

The log and the jobs may be pruned one day and a process may restart: what is counted from them at a scrape
would then go back, and a counter that goes back reads as a restart. So each step adds to what the last left.
A store from before this has them from its next step on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from starburst.core.model.decisions import Decision
from starburst.core.model.jobs import JobRecord
from starburst.core.state import Changes
from starburst.domain.job import CloudChoice, Phase
from starburst.store import codec
from starburst.store.rows import chunks
from starburst.store.schema import facts, jobs

#: Keys of the facts.
TALLIES, SPENT, STEPS = "tallies", "spent", "steps"
#: Upper bounds of the classes of waits, seconds; one more class is without bound.
BOUNDS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 86_400.0)
#: The same of the time that a step takes, seconds of the wall.
STEP_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class WaitHistogram:
    """Waits by class, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, wait_s: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS_S, wait_s)] += 1
        self.sum_s += wait_s


@dataclass(slots=True)
class DurationHistogram:
    """How long one part of the steps took, by class, and the sum of it in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, took_s: float) -> None:
        """One more."""
        self.counts[bisect_left(STEP_BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


@dataclass(slots=True)
class StepDurations:
    """How long steps took so far: to decide, and to store what was decided."""

    core: DurationHistogram = field(default_factory=DurationHistogram)
    commit: DurationHistogram = field(default_factory=DurationHistogram)


@dataclass(slots=True)
class DecisionCounters:
    """What was decided so far."""

    #: Decisions by kind.
    decisions: dict[str, int] = field(default_factory=dict)
    #: Jobs that left for the cloud, by why, and launches that came to nothing, by offer.
    offloads: dict[str, int] = field(default_factory=dict)
    launch_failures: dict[str, int] = field(default_factory=dict)
    #: Queue → site → seconds that a job waited for its first place. While it was held, or waited for other
    #: jobs or for its turn, it did not wait for a place.
    waits: dict[str, dict[str, WaitHistogram]] = field(default_factory=dict)
    #: Seconds that jobs had waited for their first place when they were held; of those that have none yet.
    waited: dict[str, float] = field(default_factory=dict)
    #: Seconds, summed over jobs: waits that we could have spared jobs and work repeated by our decision, and
    #: run times of jobs that succeeded. Their ratio is the realised increase of mean JCT over No-Wait.
    delay_s: float = 0.0
    run_s: float = 0.0


#: Queue → user → micro-dollars of settled bills.
Spent = dict[str, dict[str, int]]


def tallies(conn: Connection) -> DecisionCounters:
    """As the last step left them."""
    return codec.decode(DecisionCounters, _body(conn, TALLIES) or "{}")


def spent(conn: Connection) -> Spent:
    """The settled bills."""
    return codec.decode(dict[str, dict[str, int]], _body(conn, SPENT) or "{}")


def steps(conn: Connection) -> StepDurations:
    """How long steps took, as the scheduler last kept it (app/daemon/observers.py)."""
    return codec.decode(StepDurations, _body(conn, STEPS) or "{}")


def count(conn: Connection, changes: Changes) -> dict[str, object]:
    """The counters with a step that is not stored yet, as documents to store with it; those that it moves."""
    documents: dict[str, object] = {}
    if changes.decisions:
        kept = tallies(conn)
        _held(conn, kept, changes)
        for decision in changes.decisions:
            _decided(kept, decision, changes.jobs.get(decision.subject))
        documents[TALLIES] = kept
    bills = _new_bills(conn, [job for job in changes.jobs.values() if job.cloud_micro_usd])
    if bills:
        paid = spent(conn)
        for (queue, user), micro_usd in bills.items():
            by_user = paid.setdefault(queue, {})
            by_user[user] = by_user.get(user, 0) + micro_usd
        documents[SPENT] = paid
    return documents


def _decided(kept: DecisionCounters, decision: Decision, record: JobRecord | None) -> None:
    kind, numbers = decision.kind, decision.numbers
    _add(kept.decisions, kind)
    if kind == "launch-failed":
        _add(kept.launch_failures, str(numbers["offer"]))
    elif kind == "offloaded":
        _add(kept.offloads, str(numbers["why"]))
    elif kind == "returning":
        kept.delay_s += float(str(numbers["lost_s"]))
    elif kind == "succeeded":
        kept.run_s += float(str(numbers["runtime_s"]))
    if record is not None and record.phase.is_end:
        kept.waited.pop(record.id, None)
    if record is not None and _is_admission(decision, record):
        site = "cluster" if kind == "placed" else "cloud"
        wait_s = max(0.0, decision.at - record.queued_at) + kept.waited.pop(record.id, 0.0)
        kept.waits.setdefault(record.job.queue, {}).setdefault(site, WaitHistogram()).add(wait_s)
        if record.job.cloud is not CloudChoice.NEVER:
            kept.delay_s += wait_s


def _held(conn: Connection, kept: DecisionCounters, changes: Changes) -> None:
    """Jobs that stood in the queue and are held: their present wait, of which the record knows no more."""
    since = {row.subject: row.at for row in changes.decisions if row.kind == "held"}
    records = [changes.jobs[name] for name in since if name in changes.jobs]
    waiting = [record.id for record in records if record.attempt == 0]
    for record in _stored(conn, waiting):
        if record.phase is Phase.QUEUED:
            waited_s = max(0.0, since[record.id] - record.queued_at)
            kept.waited[record.id] = kept.waited.get(record.id, 0.0) + waited_s


def _is_admission(decision: Decision, record: JobRecord) -> bool:
    """Whether the job leaves the queue for the first time; `record` is as it was at the end of the step."""
    if decision.kind not in ("placed", "offloaded") or decision.numbers.get("why") in ("again", "stranded"):
        return False
    # A place that is there at once, on the cluster or on a machine that is up, has its attempt already.
    return record.attempt == (1 if record.phase is Phase.STARTING else 0)


def _new_bills(conn: Connection, billed: Sequence[JobRecord]) -> Mapping[tuple[str, str], int]:
    """What came onto the bills of these jobs since they were last stored, by queue and user."""
    before = dict(_stored_bills(conn, [job.id for job in billed]))
    bills = Counter[tuple[str, str]]()
    for job in billed:
        bills[job.job.queue, job.job.user] += job.cloud_micro_usd - before.get(job.id, 0)
    return {key: micro_usd for key, micro_usd in bills.items() if micro_usd > 0}


def _stored_bills(conn: Connection, ids: Sequence[str]) -> Iterator[tuple[str, int]]:
    for chunk in chunks(ids):
        for row in conn.execute(select(jobs.c.id, jobs.c.cloud_micro_usd).where(jobs.c.id.in_(chunk))):
            yield row[0], row[1]


def _stored(conn: Connection, ids: Sequence[str]) -> Iterator[JobRecord]:
    """These jobs as they were before the step; not those that are new."""
    for chunk in chunks(ids):
        for text in conn.scalars(select(jobs.c.record).where(jobs.c.id.in_(chunk))):
            yield codec.decode(JobRecord, text)


def _body(conn: Connection, key: str) -> str | None:
    return conn.scalar(select(facts.c.body).where(facts.c.key == key))


def _add(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1
