"""The store: requests of users, steps of the scheduler, and the state that a restart needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import chain, starmap
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Engine, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from starburst.aio import SerialThread
from starburst.core.model.actions import Action
from starburst.core.model.events import Event
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.views.snapshot import Facts, Snapshot
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import ALIVE, ENDS, JobEdit, Phase, Submission, Workload
from starburst.domain.node import Node
from starburst.policy.estimate_accuracy import UserAccuracy
from starburst.store import arrays, codec, counters, rows, user_requests
from starburst.store.arrays import ArrayJobs, Room, TakenJobs
from starburst.store.databases.sqlite import path_of
from starburst.store.engine import dispose, open_engine, readers, took_effect, watch
from starburst.store.errors import DuplicateJobError, StoreError, UnsureError
from starburst.store.quota import Quota
from starburst.store.schema import ACCURACY, actions, decisions, events, instances, jobs, requests
from starburst.store.statements import FACT_BODY, document, documents_of, many, put_documents, replace
from starburst.store.transactions import Asks, transaction
from starburst.store.user_requests import UserRequest, ask_edits, user_request

if TYPE_CHECKING:
    from starburst.core.state import Changes

T = TypeVar("T")

#: Phases of jobs and instances that have not ended; listed, so that SQLite uses the index on phases.
LIVE_JOBS = [phase.value for phase in Phase if not phase.is_end]
ALIVE_JOBS = [phase.value for phase in ALIVE]
ENDED_JOBS = [phase.value for phase in ENDS]
LIVE_INSTANCES = [
    phase.value for phase in InstancePhase if phase not in (InstancePhase.GONE, InstancePhase.FAILED)
]

_insert_requests = insert(requests)
_OLDEST_REQUESTS = "SELECT seq, kind, job_id, body FROM requests ORDER BY seq LIMIT :most"
_WORKLOAD = "SELECT workload FROM jobs WHERE id = :id"
_ANY_ARRAY = "SELECT 1 FROM arrays LIMIT 1"
_insert_jobs = insert(jobs)
_update_job = update(jobs).where(jobs.c.id == bindparam("job_id"))
_insert_events = insert(events)
_insert_decisions = insert(decisions)
_take_request = delete(requests).where(requests.c.seq == bindparam("taken"))
_action_done = update(actions).where(actions.c.key == bindparam("action_key"))


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the scheduler at `now` (scheduler seconds): its inputs and all changes."""

    now: float
    changes: Changes
    #: The core's facts after the step.
    facts: Facts
    events: Sequence[Event] = ()
    #: Requests that became these events.
    request_seqs: Sequence[int] = ()
    #: Arrays of which it takes up jobs.
    arrays: Sequence[TakenJobs] = ()
    #: The new jobs of this step.
    submissions: Mapping[str, Submission] = field(default_factory=dict)
    #: The core's nodes and offers after the step; stored if `changes` marks them as changed.
    nodes: Iterable[Node] = ()
    offers: Iterable[Offer] = ()


class Store:
    """The database: one connection that writes, several that read. Writers of all processes take turns."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = readers(engine)
        self._asks = Asks(self._readers)
        self._thread = SerialThread("store")
        self._watch = watch(engine)
        #: A step of which it is not known whether it is stored, and the name of its write.
        self._unsure: tuple[Step, object] | None = None
        #: Is given the connection of each write transaction at its start; raises FencedError to refuse it.
        self.fence: Callable[[Connection], None] = lambda _conn: None

    @classmethod
    def open(cls, where: str | Path, busy_ms: int | None = None) -> Store:
        """Open a file or a database URL; a new file gets mode 0600.

        `busy_ms` is the longest wait for other writers; None is half a minute.

        Raises:
            StoreError: it cannot be opened, or a newer Starburst created it.
        """
        return cls(open_engine(where, busy_ms))

    def close(self) -> None:
        """Close the database, once the calls handed to `in_order` are done."""
        self._thread.close()
        self._watch.close()
        self._asks.close()
        dispose(self._readers)
        dispose(self._engine)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database; None for other databases."""
        return path_of(self._engine)

    def read(self) -> AbstractContextManager[Connection]:
        """A read transaction on one consistent state. Thread-safe.

        Raises:
            UnusableError: all read connections are in use, or the database is out of reach.
        """
        return transaction(self._readers)

    def ask(self, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """The rows of one statement in plain SQL, such as `:name` for a value. Thread-safe.

        In SQLite this takes a fraction of the time of `read` with that statement.

        Raises:
            UnusableError: as of `read`.
        """
        return self._asks.ask(statement, values)

    @property
    def dialect(self) -> str:
        """The kind of its database: "sqlite" or "postgresql"."""
        return self._engine.dialect.name

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction; an exception rolls it back.

        Raises:
            UnusableError: another writer takes too long, or the disk is full.
            FencedError: this process does not lead any more.
        """
        with transaction(self._engine, writes=True) as conn:
            self.fence(conn)
            yield conn

    async def in_order(self, call: Callable[[], T]) -> T:
        """The result of a call on this store, made in the store's own thread after all earlier calls.

        Event loops write through this method, because a commit blocks on the disk and on other writers, for
        up to half a minute. The call is made even if its caller is cancelled.
        """
        return await self._thread.run(call)

    async def drain(self) -> None:
        """Wait until every call handed to `in_order` has been made."""
        await self._thread.drain()

    def try_write(self) -> None:
        """Check that the database can be written.

        Raises:
            UnusableError: it cannot be written now.
        """
        self.set_fact("tried", None)

    # Requests of users.

    def submit(self, submissions: Sequence[Submission], now_wall: float, quota: Quota | None = None) -> None:
        """Store requests for new jobs, all or none; an array, submitted as a whole, has one row.

        Raises:
            DuplicateJobError: an id is taken.
            QuotaError: more jobs would be pending than the quota allows.
        """
        with self.submitting(submissions, now_wall, quota):
            pass

    @contextmanager
    def submitting(
        self, submissions: Sequence[Submission], now_wall: float, quota: Quota | None = None
    ) -> Iterator[Connection]:
        """As `submit`, with what the block writes in the same transaction."""
        try:
            with self.write() as conn:
                user_requests.put(conn, submissions, now_wall)
                if quota is not None:
                    quota.keep(conn, submissions)
                yield conn
        except IntegrityError:
            with self.read() as conn:
                raise DuplicateJobError(user_requests.id_twice(conn, submissions)) from None

    def cancel(self, job_ids: Iterable[str], now_wall: float, *, now: bool = False, by: str = "") -> None:
        """Request the cancellation of jobs, with a grace unless `now`; idempotent. `by`: who asks."""
        self._ask_once("cancel-now" if now else "cancel", job_ids, now_wall, by)

    def requeue(self, job_ids: Iterable[str], now_wall: float, *, by: str = "") -> None:
        """Request that runs be stopped and their jobs queue again; idempotent."""
        self._ask_once("requeue", job_ids, now_wall, by)

    def edit(self, job_ids: Iterable[str], edit: JobEdit, now_wall: float) -> None:
        """Request changes of jobs that wait; of several requests the last one counts, field by field."""
        with self.write() as conn:
            ask_edits(conn, list(dict.fromkeys(job_ids)), edit, now_wall)

    def _ask_once(self, kind: str, job_ids: Iterable[str], now_wall: float, by: str) -> None:
        with self.write() as conn:
            asked = set(conn.scalars(select(requests.c.job_id).where(requests.c.kind == kind)))
            wanted = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in asked]
            many(conn, _insert_requests, [rows.request(kind, job_id, now_wall, by) for job_id in wanted])

    def hold(self, job_ids: Iterable[str], now_wall: float, *, by: str = "") -> None:
        """Request that pending jobs be held."""
        self._steer("hold", job_ids, now_wall, by)

    def release(self, job_ids: Iterable[str], now_wall: float, *, by: str = "") -> None:
        """Request that held jobs be released."""
        self._steer("release", job_ids, now_wall, by)

    def _steer(self, kind: str, job_ids: Iterable[str], now_wall: float, by: str) -> None:
        """Replace earlier hold and release requests of these jobs: the last request counts."""
        wanted = list(dict.fromkeys(job_ids))
        before = delete(requests).where(requests.c.kind.in_(("hold", "release")))
        with self.write() as conn:
            for chunk in rows.chunks(wanted):
                conn.execute(before.where(requests.c.job_id.in_(chunk)))
            many(conn, _insert_requests, [rows.request(kind, job_id, now_wall, by) for job_id in wanted])

    def requests(self, limit: int) -> list[UserRequest]:
        """The oldest requests that no step has taken up; jobs of arrays are `array_jobs`."""
        return list(starmap(user_request, self.ask(_OLDEST_REQUESTS, {"most": limit})))

    def cancellations(self, job_ids: Sequence[str]) -> list[UserRequest]:
        """See `user_requests.cancellations`."""
        with self.read() as conn:
            return user_requests.cancellations(conn, job_ids)

    def array_jobs(self, most: int, room: Room, asked: Iterable[str] = (), before: float = inf) -> ArrayJobs:
        """Jobs of arrays that no step has taken up; see `arrays.take`."""
        if not self.ask(_ANY_ARRAY, {}):
            return ArrayJobs([], [], {}, {})
        with self.read() as conn:
            return arrays.take(conn, most, room, asked, before)

    def submission(self, job_id: str) -> Submission | None:
        """The submission with this id, whether the scheduler has taken it up or not."""
        with self.read() as conn:
            return user_requests.submission(conn, job_id)

    def workload(self, job_id: str) -> Workload | None:
        """The workload of a job, whether the scheduler has taken it up or not."""
        if found := self.ask(_WORKLOAD, {"id": job_id}):
            return codec.decode(Workload, found[0][0])
        submission = self.submission(job_id)
        return None if submission is None else submission.workload

    def submissions(self, job_ids: Sequence[str]) -> dict[str, Submission]:
        """The submissions of jobs that the scheduler has taken up, by id."""
        with self.read() as conn:
            return user_requests.taken_up(conn, job_ids)

    # Steps of the scheduler.

    def commit(self, step: Step) -> None:
        """Store a step in one transaction: its requests are removed, its events and decisions are logged, and
        changed jobs, instances and facts are replaced; its actions become pending.

        A step whose fate is unknown, because the connection was lost during its commit, may be handed in
        again: it is stored once.

        Raises:
            StoreError: the step changed a job that is neither stored nor among its submissions.
            UnsureError: the connection was lost, and the database cannot be asked.
        """
        if self._unsure is not None and self._unsure[0] is step:
            is_stored = took_effect(self._engine, self._unsure[1])
            self._unsure = None
            if is_stored:
                return
        try:
            self._put(step)
        except UnsureError as error:
            self._unsure = step, error.write
            raise

    def _put(self, step: Step) -> None:
        changes = step.changes
        documents: dict[str, object] = {"facts": step.facts}
        if changes.nodes:
            documents["nodes"] = tuple(step.nodes)
        if changes.offers:
            documents["offers"] = tuple(step.offers)
        if changes.speeds is not None:
            documents["speeds"] = changes.speeds
        documents |= {f"{ACCURACY}{user}": worth for user, worth in changes.accuracies.items()}
        with self.write() as conn:
            many(conn, _take_request, [{"taken": seq} for seq in step.request_seqs])
            arrays.advance(conn, step.arrays)
            many(conn, _insert_events, [rows.event(item, step.now) for item in step.events])
            documents |= counters.count(conn, changes)
            _put_jobs(conn, changes.jobs, step.submissions)
            many(conn, _insert_decisions, [rows.decision(item) for item in changes.decisions])
            replace(conn, instances, instances.c.id, [rows.instance(i) for i in changes.instances.values()])
            # A repeated action is pending again: the state of its target may have changed since.
            asked = {item.key: item for item in changes.actions}
            replace(conn, actions, actions.c.key, [rows.action(item) for item in asked.values()])
            put_documents(conn, documents)

    def pending_actions(self) -> list[Action]:
        """Actions that are not done, in order."""
        pending = select(actions.c.kind, actions.c.body).where(actions.c.done_at.is_(None))
        with self.read() as conn:
            return [codec.action(kind, body) for kind, body in conn.execute(pending.order_by(actions.c.seq))]

    def actions_done(self, keys: Sequence[str], now: float) -> None:
        """Mark actions as done, all in one transaction."""
        with self.write() as conn:
            many(conn, _action_done, [{"action_key": key, "done_at": now} for key in keys])

    def snapshot(self, *, waiting: bool = True) -> Snapshot:
        """The state that a scheduler restarts from: jobs not ended or not paid, instances not ended.

        Without `waiting`: no jobs that hold no room."""
        unfinished = jobs.c.phase.in_(LIVE_JOBS if waiting else [*ALIVE_JOBS, Phase.OFFLOADING.value])
        unpaid = jobs.c.phase.in_(ENDED_JOBS) & (jobs.c.open_bills > 0)
        open_instances = instances.c.phase.in_(LIVE_INSTANCES)
        with self.read() as conn:
            return Snapshot(
                document(conn, "facts", Facts) or Facts(),
                codec.decode_all(JobRecord, _texts(conn, jobs.c.record, unfinished | unpaid)),
                codec.decode_all(InstanceRecord, _texts(conn, instances.c.record, open_instances)),
                document(conn, "nodes", tuple[Node, ...]) or (),
                document(conn, "offers", tuple[Offer, ...]) or (),
                document(conn, "speeds", dict[str, Any]),
                documents_of(conn, ACCURACY, UserAccuracy),
            )

    # Small documents.

    def fact(self, key: str) -> Any:
        """A JSON document by key; None if it was never stored."""
        return None if (text := self.fact_text(key)) is None else json.loads(text)

    def fact_text(self, key: str) -> str | None:
        """The text of a JSON document."""
        found = self.ask(FACT_BODY, {"key": key})
        return str(found[0][0]) if found else None

    def set_fact(self, key: str, value: object) -> None:
        """Store a JSON document under a key."""
        with self.write() as conn:
            put_documents(conn, {key: value})

    def data_version(self) -> int:
        """A number that changes when another process writes; cheap to query."""
        return self._watch.version()


def _put_jobs(
    conn: Connection, touched: Mapping[str, JobRecord], submissions: Mapping[str, Submission]
) -> None:
    new, changed = [], []
    for job_id, record in touched.items():
        if job_id in submissions:
            new.append(rows.new_job(record, submissions[job_id]))
        else:
            changed.append({"job_id": job_id, **rows.job_progress(record)})
    many(conn, _insert_jobs, new)
    stored = many(conn, _update_job, changed)
    if stored is not None and stored != len(changed):
        raise StoreError(f"of {', '.join(row['job_id'] for row in changed)} at least one was never stored")


def _texts(conn: Connection, text: Column[str], condition: ColumnElement[bool]) -> Iterator[str]:
    found = conn.scalars(select(text).where(condition).execution_options(yield_per=1000))
    return chain.from_iterable(found.partitions())
