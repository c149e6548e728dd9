"""Monotonic counters, updated in the transaction of the decisions and bills that they count.

A counter computed from the log at each scrape would decrease when the log is pruned, and Prometheus would
read that as a restart. Therefore each step adds to the counters of the previous one. A store from an older
version counts from its next step on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection

from starburst.core.model.decisions import Decision
from starburst.core.model.jobs import JobRecord
from starburst.domain.job import CloudChoice, Phase
from starburst.store import codec
from starburst.store.statements import documents_of, fact_body, rows_with

if TYPE_CHECKING:
    from starburst.core.state import Changes

T = TypeVar("T")

#: Keys of the facts that hold the counters.
TALLIES, STEPS = "tallies", "steps"
#: Beginnings of keys that a queue's name ends: a step reads and stores those of its queues only.
WAITS, SPENT = "waits/", "spent/"
#: Upper bounds of the histogram of waits, seconds; the last bucket has no bound.
BOUNDS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 86_400.0)
#: Upper bounds of the histogram of step durations, wall seconds.
STEP_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class WaitHistogram:
    """Waits by bucket, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, wait_s: float) -> None:
        """Count one wait."""
        self.counts[bisect_left(BOUNDS_S, wait_s)] += 1
        self.sum_s += wait_s


@dataclass(slots=True)
class DurationHistogram:
    """Durations of one part of the steps by bucket, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, took_s: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(STEP_BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


@dataclass(slots=True)
class StepDurations:
    """Durations of all steps so far: of the decision, and of the commit."""

    core: DurationHistogram = field(default_factory=DurationHistogram)
    commit: DurationHistogram = field(default_factory=DurationHistogram)


@dataclass(slots=True)
class DecisionCounters:
    """Counters of decisions."""

    #: Decisions by kind.
    decisions: dict[str, int] = field(default_factory=dict)
    #: Offloaded jobs by reason, and failed launches by offer.
    offloads: dict[str, int] = field(default_factory=dict)
    launch_failures: dict[str, int] = field(default_factory=dict)
    #: Job id to seconds that the job had waited when it was held; only jobs without a placement so far.
    waited: dict[str, float] = field(default_factory=dict)
    #: Sums over jobs, in seconds: delay is avoidable waiting and repeated work; run is the run time of
    #: succeeded jobs. Their ratio is the realised increase of the mean JCT over No-Wait.
    delay_s: float = 0.0
    run_s: float = 0.0


#: Of a queue: site to histogram of seconds until the first placement. The time in which a job was held, or
#: waited for prerequisites or its array limit, is excluded.
Waits = dict[str, WaitHistogram]
#: Of a queue: user to micro-dollars of settled bills.
Spent = dict[str, int]


def tallies(conn: Connection) -> DecisionCounters:
    """The counters as of the last step."""
    return codec.decode(DecisionCounters, fact_body(conn, TALLIES) or "{}")


def waits(conn: Connection) -> dict[str, Waits]:
    """Waits of jobs that were given a place, by queue."""
    return documents_of(conn, WAITS, dict[str, WaitHistogram])


def spent(conn: Connection) -> dict[str, Spent]:
    """Settled bills, by queue."""
    return documents_of(conn, SPENT, dict[str, int])


def steps(conn: Connection) -> StepDurations:
    """Step durations as last stored by the scheduler (app/daemon/observers.py)."""
    return codec.decode(StepDurations, fact_body(conn, STEPS) or "{}")


def count(conn: Connection, changes: Changes) -> dict[str, object]:
    """The counters including a step that is about to be stored: only the changed documents, by fact key."""
    documents: dict[str, object] = {}
    if changes.decisions:
        kept = tallies(conn)
        _held(conn, kept, changes)
        admissions = [
            _decided(kept, decision, changes.jobs.get(decision.subject)) for decision in changes.decisions
        ]
        documents[TALLIES] = kept
        documents |= _new_waits(conn, [one for one in admissions if one is not None])
    bills = _new_bills(conn, [job for job in changes.jobs.values() if job.cloud_micro_usd])
    return documents | _new_spent(conn, bills)


#: A job's first place: its queue, the site, and the seconds that it waited.
Admission = tuple[str, str, float]


def _decided(kept: DecisionCounters, decision: Decision, record: JobRecord | None) -> Admission | None:
    """Count a decision; returned is the first place that it gave a job, if it did."""
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
    if record is None or not _is_admission(decision, record):
        return None
    wait_s = max(0.0, decision.at - record.queued_at) + kept.waited.pop(record.id, 0.0)
    if record.job.cloud is not CloudChoice.NEVER:
        kept.delay_s += wait_s
    return record.job.queue, "cluster" if kind == "placed" else "cloud", wait_s


def _new_waits(conn: Connection, admissions: Sequence[Admission]) -> dict[str, object]:
    """The waits of these jobs' queues with theirs, by fact key."""
    kept = documents_of(conn, WAITS, dict[str, WaitHistogram], {queue for queue, *_ in admissions})
    for queue, site, wait_s in admissions:
        kept.setdefault(queue, {}).setdefault(site, WaitHistogram()).add(wait_s)
    return {WAITS + queue: waits for queue, waits in kept.items()}


def _new_spent(conn: Connection, bills: Mapping[tuple[str, str], int]) -> dict[str, object]:
    """The settled bills of these queues with these bills, by fact key."""
    kept = documents_of(conn, SPENT, dict[str, int], {queue for queue, _ in bills})
    for (queue, user), micro_usd in bills.items():
        by_user = kept.setdefault(queue, {})
        by_user[user] = by_user.get(user, 0) + micro_usd
    return {SPENT + queue: by_user for queue, by_user in kept.items()}


def _held(conn: Connection, kept: DecisionCounters, changes: Changes) -> None:
    """Add the present waits of queued jobs that become held: the record forgets them."""
    since = {row.subject: row.at for row in changes.decisions if row.kind == "held"}
    records = [changes.jobs[name] for name in since if name in changes.jobs]
    waiting = [record.id for record in records if record.attempt == 0]
    for record in _stored(conn, waiting):
        if record.phase is Phase.QUEUED:
            waited_s = max(0.0, since[record.id] - record.queued_at)
            kept.waited[record.id] = kept.waited.get(record.id, 0.0) + waited_s


def _is_admission(decision: Decision, record: JobRecord) -> bool:
    """Whether the job leaves the queue for the first time; `record` is its state after the step."""
    if decision.kind not in ("placed", "offloaded") or decision.numbers.get("why") in ("again", "stranded"):
        return False
    # An immediate placement, on the cluster or on a running instance, has counted its attempt already.
    return record.attempt == (1 if record.phase is Phase.STARTING else 0)


def _new_bills(conn: Connection, billed: Sequence[JobRecord]) -> Mapping[tuple[str, str], int]:
    """The increase of these jobs' bills since they were last stored, by queue and user."""
    stored = rows_with(conn, "SELECT id, cloud_micro_usd FROM jobs", "id", [job.id for job in billed])
    before: dict[str, int] = {row[0]: row[1] for row in stored}
    bills = Counter[tuple[str, str]]()
    for job in billed:
        bills[job.job.queue, job.job.user] += job.cloud_micro_usd - before.get(job.id, 0)
    return {key: micro_usd for key, micro_usd in bills.items() if micro_usd > 0}


def _stored(conn: Connection, ids: Sequence[str]) -> Iterator[JobRecord]:
    """These jobs as stored before the step; new jobs are missing."""
    for (text,) in rows_with(conn, "SELECT record FROM jobs", "id", ids):
        yield codec.decode(JobRecord, text)


def _add(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1
